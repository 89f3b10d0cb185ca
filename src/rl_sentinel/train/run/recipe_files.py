"""Files that a recipe names, by digest: a resumed run notices that its chat template or a function has changed."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_sentinel.train.config.recipe import Recipe


def template_digest(recipe: Recipe) -> str:
    """The digest of the chat template's file; empty if the recipe names no file."""
    template = "" if recipe.chat is None else recipe.chat.template
    return _digest(template) if template != "tokenizer" else ""


def code_digests(recipe: Recipe) -> dict[str, str]:
    """File -> digest, for each ``file.py:name`` in the recipe; modules that such a file imports are left out."""
    files = [text.rpartition(":")[0] for text in _texts(recipe.model_dump(mode="json")) if ".py:" in text]
    return {file: digest for file in dict.fromkeys(files) if file.endswith(".py") and (digest := _digest(file))}


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a recipe
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _digest(path: str) -> str:
    """The digest of a file; empty if it is not a file that can be read."""
    try:
        return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()
    except OSError:
        return ""
