"""Conversations rendered by a chat template, and TRL's templates by name."""

import importlib
from collections.abc import Iterable
from typing import Any

from rl_sentinel.adapters.target import Target

MODULE = "trl.chat_template_utils"
PATH = f"{MODULE}.get_training_chat_template"

#: Suffixes of the names of a template and of its training variant in the module.
ORIGINAL, TRAINING = "_chat_template", "_training_chat_template"

#: Special tokens that templates write.
SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}


def in_parts(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with each text as a list of one part, which the templates of models with images expect."""
    return [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in conversation]


def rendered(template: str, conversation: list[dict[str, Any]], **options: object) -> str | None:
    """The rendered text of a conversation, with contents as text or as lists of parts; None if the template fails."""
    render = importlib.import_module("transformers.utils.chat_template_utils").render_jinja_template
    errors = (importlib.import_module("jinja2").TemplateError, TypeError)
    for form in (conversation, in_parts(conversation)):
        try:
            texts, _ = render([form], chat_template=template, **SPECIAL, **options)
        except errors:
            continue
        return str(texts[0])
    return None


def compile_templates(target: Target, names: Iterable[str], ends: Iterable[str]) -> None:
    """Compile the templates whose names are one of ``names`` plus one of ``ends``; transformers caches them.

    Compiling a template takes a tenth of a second. Without this call, each process that checks a pair would compile all
    of them again.
    """
    templates = vars(target.module(MODULE))
    for name in names:
        for end in ends:
            rendered(templates[name + end], [{"role": "user", "content": "w1"}])
