"""A fake of the parser of transformers 5.0 to 5.10: a schema with regular expressions says how to read a reply."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]


def read_reply(text: str, schema: Schema) -> Any:  # noqa: ANN401 - as the schema says
    """The parts of a reply that a schema describes; None where the reply has no such part.

    Example:
        >>> from rl_sentinel.adapters.trl.response_schema import read_reply
        >>> word = {"type": "string", "x-regex": "say (.*)"}
        >>> read_reply("say it", {"type": "object", "properties": {"word": word, "other": {"const": 1}}})
        {'word': 'it', 'other': 1}
    """
    return _read(text, schema)


def _read(content: Any, schema: Schema) -> Any:  # noqa: ANN401 - a text, or parts of it
    if "const" in schema:
        return schema["const"]
    for key, step in _STEPS.items():
        if content is not None and key in schema:
            content = step(content, schema)
    return None if content is None else _FORMS.get(schema.get("type", ""), _as_it_is)(content, schema)


def _groups(found: re.Match[str]) -> Any:  # noqa: ANN401 - the named groups, or the text of the only group
    named = {name: text for name, text in found.groupdict().items() if text is not None}
    return named if found.re.groupindex else found[1]


def _substituted(text: str, schema: Schema) -> str:
    for pattern, other in schema["x-regex-substitutions"]:
        text = re.sub(pattern, other, text, flags=re.DOTALL)
    return text


def _searched(text: str, schema: Schema) -> Any:  # noqa: ANN401 - see _groups
    found = re.search(schema["x-regex"], text, re.DOTALL)
    return None if found is None else _groups(found)


def _iterated(text: str, schema: Schema) -> list[Any] | None:
    return [_groups(found) for found in re.finditer(schema["x-regex-iterator"], text, re.DOTALL)] or None


def _paired(text: str, schema: Schema) -> dict[str, str] | None:
    pairs = [_groups(found) for found in re.finditer(schema["x-regex-key-value"], text, re.DOTALL)]
    return {pair["key"]: pair["value"] for pair in pairs} or None


def _parsed(text: str, schema: Schema) -> Any:  # noqa: ANN401 - as the JSON text says
    options = schema.get("x-parser-args", {})
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        if not options.get("allow_non_json"):
            raise
        value = text
    around = options.get("transform")
    if around is None:
        return value
    # An expression such as {type: 'function', function: @}; @ is the value.
    words = re.sub(r"(\w+):", r'"\1":', around).replace("'", '"')
    return json.loads(words.replace("@", json.dumps(value)))


#: Key of a schema -> the step that it asks for, in the order of the steps.
_STEPS: Mapping[str, Callable[[Any, Schema], Any]] = {
    "x-regex-substitutions": _substituted,
    "x-regex": _searched,
    "x-regex-iterator": _iterated,
    "x-regex-key-value": _paired,
    "x-parser": _parsed,
}


def _as_object(content: Any, schema: Schema) -> dict[str, Any]:  # noqa: ANN401 - a text, or a dict
    known = schema.get("properties", {})
    if isinstance(content, str):
        read = {name: _read(content, part) for name, part in known.items()}
        return {name: value for name, value in read.items() if value is not None}
    read = {name: _read(content.get(name), part) for name, part in known.items() if name in content or "const" in part}
    others = schema.get("additionalProperties", {})
    if others is False:
        return read
    part = others if isinstance(others, Mapping) else {}
    return read | {name: _read(value, part) for name, value in content.items() if name not in known}


def _as_array(content: Any, schema: Schema) -> list[Any]:  # noqa: ANN401 - a list
    return [_read(item, schema["items"]) for item in content]


def _as_it_is(content: Any, _schema: Schema) -> Any:  # noqa: ANN401 - any value
    return content


_FORMS: Mapping[str, Callable[[Any, Schema], Any]] = {
    "object": _as_object,
    "array": _as_array,
    "integer": lambda content, _schema: int(content),
    "number": lambda content, _schema: float(content),
}
