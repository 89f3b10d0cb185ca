"""Chat templates: Jinja texts that turn a conversation into the text that a policy reads."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.core.phrasing import reason_of

#: A message of a conversation, with ``role`` and ``content``.
Message = Mapping[str, str]


def read_template(path: str) -> str:
    """The text of a template file, which must be valid Jinja.

    Raises:
        SentinelError: if it cannot be read, or is empty or malformed.
    """
    try:
        text = expanded(path, "chat.template").read_text(encoding="utf-8")
        _environment().parse(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        fix = 'name a file, or "tokenizer" for the template of the tokenizer'
        raise SentinelError(f"chat.template {path!r} cannot be read ({reason}): {fix}") from error
    except jinja2.TemplateSyntaxError as error:
        place_of_error = f"chat.template {path!r} line {error.lineno}"
        raise SentinelError(f"{place_of_error} is malformed ({error.message}), expected Jinja") from error
    if not text.strip():
        raise SentinelError(f"chat.template {path!r} is empty, expected Jinja that renders the messages")
    return text


def render_template(template: str, messages: Sequence[Message], special: Mapping[str, str]) -> str:
    """Render a conversation, with the start of the next response.

    Args:
        template: the Jinja text.
        messages: the conversation.
        special: texts of special tokens by name, such as ``bos_token``.

    Raises:
        SentinelError: if the template rejects the conversation.

    Example:
        >>> from rl_sentinel.train.model.chat_template import render_template
        >>> render_template("{{ messages[0].content }}>", [{"role": "user", "content": "1+2"}], {})
        '1+2>'
    """
    try:
        compiled = _environment().from_string(template)
        return compiled.render(messages=[dict(m) for m in messages], add_generation_prompt=True, tools=None, **special)
    except Exception as error:  # a template may raise anything, such as ZeroDivisionError
        raise SentinelError(
            f"chat.template cannot render a conversation ({reason_of(error)}): fix the Jinja file"
        ) from error


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja as the templates of transformers expect it: trimmed blocks, and a few functions."""

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, indent: int | None = None) -> str:  # noqa: ANN401 - any value of JSON
        return json.dumps(value, ensure_ascii=False, indent=indent)

    extensions = ["jinja2.ext.loopcontrols"]
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, extensions=extensions
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    return environment
