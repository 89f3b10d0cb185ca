"""A fake of the tables of ``pandas``, which reads a column of texts as numbers if all of them look like numbers."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Row(dict[str, Any]):
    """A row of a table."""

    def to_dict(self) -> dict[str, Any]:
        """The row as a dict."""
        return dict(self)


@dataclass(frozen=True, slots=True)
class PandasRows:
    """A fake of the module ``pandas`` and of its tables."""

    rows: Sequence[Mapping[str, Any]] = ()

    def read_json(
        self,
        path: str,
        dtype: Mapping[str, Callable[[Any], Any]] | bool | None = None,  # noqa: FBT001 - as in pandas
        **_options: object,
    ) -> "PandasRows":
        """The rows of a file with one JSON object per line.

        A column has the type in ``dtype``; with ``dtype=False`` it stays as it is, and else its type is inferred.
        """
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        types = dtype if isinstance(dtype, Mapping) else {}
        columns = {
            name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)
        }
        for name, values in columns.items():
            if name in types:
                columns[name] = [types[name](value) for value in values]
            elif dtype is not False:
                columns[name] = inferred(values)
        return PandasRows([{name: values[place] for name, values in columns.items()} for place in range(len(rows))])

    def iterrows(self) -> Iterator[tuple[int, Row]]:
        """The rows with their places."""
        yield from enumerate(map(Row, self.rows))


def inferred(values: list[Any]) -> list[Any]:
    """The values as numbers, if all are texts of numbers.

    Example:
        >>> from rl_sentinel.adapters.kit.pandas_rows import inferred
        >>> inferred(["007", "1"]), inferred(["0.5", "1"]), inferred(["007", "x"])
        ([7, 1], [0.5, 1.0], ['007', 'x'])
    """
    try:
        numbers = [float(value) for value in values if isinstance(value, str)]
    except ValueError:
        return values
    if len(numbers) < len(values):
        return values
    return [int(number) for number in numbers] if all(number.is_integer() for number in numbers) else list(numbers)
