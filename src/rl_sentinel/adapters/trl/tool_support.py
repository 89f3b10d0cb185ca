"""TRL's check of whether a chat template supports tools, and which tokens of a call and its result a template drops."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.tiny_trainer import make_tokenizer
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

PATH = "trl.chat_template_utils.supports_tool_calling"

_NAME = "{{ call['function']['name'] + ' ' }}"
_VALUES = "{% for key, value in call['function']['arguments'].items() %}{{ key + ' ' + value + ' ' }}{% endfor %}"
_OBJECT = "{{ call['function']['arguments'] | tojson }}{{ ' ' }}"

#: What a template writes: the call's name and arguments, and the words of a message by role.
_CALLS = "{% for call in message['tool_calls'] or [] %}CALL{% endfor %}"
_EVERY = "{% for message in messages %}CALLS{{ message['role'] + ' ' + message['content'] + ' ' }}{% endfor %}"
_NO_RESULT = _EVERY.replace(
    "{{ message['role'] + ' ' + message['content'] + ' ' }}",
    "{% if message['role'] != 'tool' %}{{ message['role'] + ' ' + message['content'] + ' ' }}{% endif %}",
)
_REFUSED = _EVERY.replace("CALLS", "CALLS{{ raise_exception('no such role') if message['role'] == 'tool' }}")


def _template(call: str, every: str = _EVERY) -> str:
    return every.replace("CALLS", _CALLS.replace("CALL", call) if call else "")


#: Kind of template -> the template, and why it does not support tools; empty if it does.
TEMPLATES: Mapping[str, tuple[str, str]] = {
    "writes arguments one by one": (_template(_NAME + _VALUES), ""),
    "writes arguments as an object": (_template(_NAME + _OBJECT), ""),
    "drops calls": (_template(""), "the turns that call a tool would train as empty replies"),
    "drops names": (_template(_VALUES), "calls of different tools would be the same text"),
    "drops arguments": (_template(_NAME), "calls with different arguments would be the same text"),
    "drops results": (_template(_NAME + _VALUES, _NO_RESULT), "the model would not read what a tool answers"),
    "refuses results": (_template(_NAME + _VALUES, _REFUSED), "a conversation with the answer of a tool raises"),
}

#: Prefix of the settings whose template drops a part of a tool call or of its result.
EXCHANGE = "an exchange, "

_SAYS = (
    "chat_template_utils.py, supports_tool_calling, docstring: check if the chat template can render a full "
    "tool-calling conversation; grpo_trainer.py, __init__: a template that cannot is refused"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the check, and of exchanges (a call and its result) with templates that drop a part.

    Trainers with tools run the check before training.
    """
    if target.has(PATH) and not target.fails(PATH):
        yield from bindable(target, _check(), _exchange())


def supports(check: Callable[..., bool], template: str) -> dict[str, float]:
    """1 if the check accepts the template, else 0."""
    tokenizer: Any = make_tokenizer()
    tokenizer.chat_template = TEMPLATES[template][0]
    return {"accepted": float(check(tokenizer))}


def exchanged_tokens(check: Callable[..., bool], tokens: Tensor, template: str) -> dict[str, Tensor]:
    """The tokens ``[B, T]`` of calls and results that a rendered conversation contains; -1 where a part is lost.

    Each token is encoded in a call: in its name, in the name and value of its argument, and in its result. A template
    that the check refuses is not trained on, and loses nothing.
    """
    tokenizer: Any = make_tokenizer()
    tokenizer.chat_template = TEMPLATES[template][0]
    if not check(tokenizer):
        return {"tokens": tokens}
    kept = [[token if _writes(tokenizer, token) else -1 for token in row] for row in tokens.tolist()]
    return {"tokens": torch.tensor(kept).reshape(tokens.shape)}


def _writes(tokenizer: Any, token: int) -> bool:  # noqa: ANN401 - a tokenizer
    """Whether the template writes all parts of a call and of its result."""
    name, key, value, result = parts = [f"{part}{token}" for part in ("name", "key", "value", "result")]
    call = {"type": "function", "function": {"name": name, "arguments": {key: value}}}
    conversation = [
        {"role": "user", "content": "w1"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": name, "content": result},
    ]
    try:
        text = tokenizer.apply_chat_template(conversation, tokenize=False)
    except importlib.import_module("jinja2").TemplateError:
        return False
    return all(part in text for part in parts)


def _exchange() -> Boundary:
    return one_call(
        path=PATH,
        stage="batch",
        call=exchanged_tokens,
        name="kept",
        arguments={
            "check": Constant(Function(PATH)),
            "tokens": Column("token", NoPadding()),
            "template": Knob("template"),
        },
        remembered=True,
        produced_by={"tokens": "grpo_trainer.py, _tool_call_loop: calls of a completion, and what the tools answer"},
        outputs={"token": Output("B T", "", "token", at=Use("kept")["tokens"])},
        settings={f"{EXCHANGE}{name}": {"template": name} for name, (_, why) in TEMPLATES.items() if why},
        claims=claims(_SAYS, conserves=True),
        reach="tools, or conversations with calls of tools",
        domain=a_few_rows,
    )


def _check() -> Boundary:
    settings: dict[str, Settings] = {name: {"template": name} for name in TEMPLATES}
    lost = {name: why for name, (_, why) in TEMPLATES.items() if why}
    whole = {name: "it writes the whole exchange" for name in TEMPLATES if name.startswith("writes")}
    return one_call(
        path=PATH,
        stage="config",
        call=supports,
        name="found",
        arguments={"check": Constant(Function(PATH)), "template": Knob("template")},
        remembered=True,
        produced_by={"template": "grpo_trainer.py, __init__: supports_tool_calling(processing_class)"},
        outputs={"accepted": Output("", "", "accepted", at=Use("found")["accepted"])},
        settings=settings,
        claims=claims(_SAYS, refused=lost, accepted=whole),
        reach="tools",
    )
