"""The fake of the parser that reads a reply by a schema."""

import pytest

from rl_sentinel.adapters.trl.response_schema import read_reply

PAIRS = {"type": "object", "x-regex-key-value": "(?P<key>[a-z]+)=(?P<value>[^;]*);"}
JSON = {"x-parser": "json", "x-parser-args": {"allow_non_json": True}}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("a=1;b=x;", PAIRS, {"a": "1", "b": "x"}),
        ("nothing", PAIRS, None),
        ("a=1;b=x;", {**PAIRS, "additionalProperties": JSON}, {"a": 1, "b": "x"}),
        ("a=1;", {**PAIRS, "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ("a=1;b=2;", {**PAIRS, "properties": {"a": {"type": "number"}}, "additionalProperties": False}, {"a": 1.0}),
        ("[2]", {"x-regex-substitutions": [["2", "3"]], "x-parser": "json"}, [3]),
        (
            "7",
            {"x-parser": "json", "x-parser-args": {"transform": "[{type: 'one', value: @}]"}},
            [{"type": "one", "value": 7}],
        ),
        ("", {"type": "object", "x-regex": "^(?P<a>x)?", "properties": {"b": {"const": 1}}}, {"b": 1}),
    ],
)
def test_by_hand(text: str, schema: dict[str, object], value: object) -> None:
    """Pairs, other properties, numbers, substitutions, an expression around a value, and an optional group."""
    assert read_reply(text, schema) == value


def test_what_is_no_json_raises() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        read_reply("{", {"x-parser": "json"})
