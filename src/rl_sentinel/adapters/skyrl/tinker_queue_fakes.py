"""A fake of the database in which SkyRL's Tinker server stores requests: a table, queries and sessions."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row."""

    holds: Callable[[Any], bool]

    def __or__(self, other: "Condition") -> "Condition":
        """Whether one of both holds."""
        return Condition(lambda row: self.holds(row) or other.holds(row))

    def __and__(self, other: "Condition") -> "Condition":
        """Whether both hold."""
        return Condition(lambda row: self.holds(row) and other.holds(row))


class Column:
    """A column of a table, or its least value in a group of rows; comparisons are conditions."""

    def __init__(self, name: str, *, least: bool = False) -> None:
        """Store the name of the column."""
        self.name, self.least = name, least

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]  # as sqlalchemy
        """Whether the value of the row is this one."""
        return Condition(lambda row: bool(getattr(row, self.name) == value))

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]  # as sqlalchemy
        """Whether the value of the row is another one."""
        return Condition(lambda row: bool(getattr(row, self.name) != value))

    def __hash__(self) -> int:
        """The hash of the name."""
        return hash(self.name)

    def __getitem__(self, key: str) -> "Column":
        """An item of a dict in the column."""
        return Column(key)

    def as_string(self) -> "Column":
        """The column: no value is converted."""
        return self

    def label(self, _name: str) -> "Column":
        """The column: results have no names."""
        return self

    def in_(self, values: Any) -> Condition:  # noqa: ANN401 - any iterable
        """Whether the value of the row is among these."""
        known = list(values)
        return Condition(lambda row: getattr(row, self.name) in known)


def least(column: Column) -> Column:
    """The least value of a column in a group of rows."""
    return Column(column.name, least=True)


#: The table of requests.
REQUESTS = SimpleNamespace(
    **{name: Column(name) for name in ("request_id", "request_type", "model_id", "request_data", "status")}
)


class Query:
    """A query of the table: its rows, or a tuple of columns of each row or of each group."""

    def __init__(self, *selected: Any) -> None:  # noqa: ANN401 - the table, or columns
        """Store the table or the columns."""
        self.selected = selected
        self.conditions: list[Condition] = []
        self.key: Column | None = None

    def where(self, *conditions: Condition) -> "Query":
        """Select only rows for which the conditions hold."""
        self.conditions += conditions
        return self

    def order_by(self, *_columns: Column) -> "Query":
        """The query: rows are in the order of their ids."""
        return self

    def group_by(self, column: Column) -> "Query":
        """Select one result for each value of the column."""
        self.key = column
        return self

    def results(self, rows: list[Any]) -> list[Any]:
        """The selected results."""
        found = [row for row in rows if all(one.holds(row) for one in self.conditions)]
        if self.selected[0] is REQUESTS:
            return found
        groups: dict[Any, list[Any]] = {}
        for number, row in enumerate(found):
            groups.setdefault(number if self.key is None else getattr(row, self.key.name), []).append(row)
        return [tuple(_value(column, group) for column in self.selected) for group in groups.values()]


def _value(column: Column, group: list[Any]) -> Any:  # noqa: ANN401 - of a row
    values = [getattr(row, column.name) for row in group]
    return min(values) if column.least else values[0]


class Session:
    """A session with the rows of the table."""

    def __init__(self, rows: list[Any]) -> None:
        """Store the rows."""
        self.rows = rows

    def __enter__(self) -> Self:
        """Start."""
        return self

    def __exit__(self, *_error: object) -> None:
        """End."""

    def exec(self, query: Query) -> SimpleNamespace:
        """Run a query."""
        found = query.results(self.rows)
        return SimpleNamespace(all=lambda: found, first=lambda: next(iter(found), None))
