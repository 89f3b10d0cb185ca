"""A fake of the data sets of Hugging Face's package ``datasets``, whose nested columns have one type for all rows."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class HubRows:
    """A fake of ``datasets.Dataset``: the rows of a JSON file, in which all dicts of a column have all keys."""

    @staticmethod
    def from_json(path: str, **_options: object) -> Iterator[dict[str, Any]]:
        """The rows of a file with one JSON object per line."""
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return iter(one_type([json.loads(line) for line in lines]))


def one_type(values: Sequence[Any]) -> list[Any]:
    """Give all dicts at the same place the same keys. A key that a dict lacks gets the value None.

    A column of Arrow has one type for all rows, so that the package reads nested columns in this way.

    Example:
        >>> from rl_sentinel.adapters.kit.hub_rows import one_type
        >>> one_type([{"a": [{"b": 1}]}, {"a": [{"c": 2}]}])
        [{'a': [{'b': 1, 'c': None}]}, {'a': [{'b': None, 'c': 2}]}]
    """
    dicts = [value for value in values if isinstance(value, dict)]
    if dicts:
        keys = dict.fromkeys(key for value in dicts for key in value)
        columns = {key: one_type([value.get(key) for value in dicts]) for key in keys}
        made = iter([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
        return [next(made) if isinstance(value, dict) else value for value in values]
    lists = [value for value in values if isinstance(value, list)]
    flat = iter(one_type([item for value in lists for item in value]) if lists else [])
    return [[next(flat) for _ in value] if isinstance(value, list) else value for value in values]
