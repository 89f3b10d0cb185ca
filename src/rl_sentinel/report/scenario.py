"""Format the batch of a counterexample for reports."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_sentinel.core.batch import COLUMNS, EXCLUDED
from rl_sentinel.report.formatting import numbers

#: Columns that are shown first.
_FIRST = ("group", "mask", "reward")

#: Columns that are shown only if they were changed, or if the boundary reads no other signal.
_MINOR = frozenset({"prompt_length", "version", "token", "logits"})

#: Laws whose result does not depend on the batch; their findings show no batch.
_ON_ANY_BATCH = frozenset({"CFG001", "CFG003"})


def has_batch(evidence: Mapping[str, Any]) -> bool:
    """Whether the finding depends on the batch: some columns were read, and the law is not about settings alone."""
    return bool(evidence.get("reads", True)) and evidence["law"] not in _ON_ANY_BATCH


def scenario(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and values of each column that matters; a changed cell is written as ``before -> after``.

    Most columns that the boundary does not read are left out. A note after the mask lists the rows that are excluded
    from training, unless this exclusion is what was changed.
    """
    change = evidence["expectation"]["change"] or {}
    note = _excluded_rows(_excluded(_columns(evidence))) if change.get("column") != "excluded" else ""
    shown = [(name, _values(name, values, change)) for name, values in scenario_columns(evidence)]
    if not note:
        return shown
    return [(n, f"{values}  ({note})" if n == "mask" else values) for n, values in shown if n != "excluded"]


def scenario_columns(evidence: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name and nested lists of each column that matters, before the change."""
    columns = _columns(evidence)
    change = evidence["expectation"]["change"] or {}
    names = sorted(_visible_columns(columns, evidence, change.get("column", "")), key=lambda n: (n not in _FIRST, n))
    return [(name, columns[name]) for name in names]


def conditions(evidence: Mapping[str, Any]) -> str:
    """Special properties of the counterexample's responses, as a clause; may be empty."""
    columns = _columns(evidence)
    excluded = _excluded(columns)
    parts = [f"a {word} response" for word, n in EXCLUDED.items() if n in excluded and word not in ("in", "padding")]
    parts += ["a padding row"] if EXCLUDED["padding"] in excluded else []
    lengths = columns.get("length", [len(row) for row in columns["mask"]])
    if any(any(row) and not all(row[:n]) for row, n in zip(columns["mask"], lengths, strict=True)):
        parts.append("an untrained token in a response")
    return f"with {' and '.join(parts)}" if parts else ""


def _columns(evidence: Mapping[str, Any]) -> dict[str, Any]:
    return {n: c["values"] for n, c in evidence["constructed_scenario"]["batch"].items()}


def _excluded(columns: Mapping[str, Any]) -> list[int]:
    """The number of the reason why each row is excluded from training; 0 for a row with a trained token.

    Empty if the batch has no column of reasons.
    """
    return [0 if any(row) else n for row, n in zip(columns["mask"], columns.get("excluded", []), strict=False)]


def _visible_columns(columns: Mapping[str, Any], evidence: Mapping[str, Any], changed: str) -> set[str]:
    reads = {*evidence.get("reads", columns)}
    names = {"mask", *reads}
    if reads and "mask" not in reads and all(map(all, columns["mask"])) and not any(_excluded(columns)):
        names.discard("mask")
    if reads - _MINOR - {"mask", "group", "length"}:
        names -= _MINOR
    if _length_differs(columns):
        names.add("length")
    else:
        names.discard("length")
    names -= {"excluded", "scored"}
    if any(_excluded(columns)):
        names.add("excluded")
    if not all(columns.get("scored", [])):
        names.add("scored")
    names -= {n for n in names - {*_FIRST} if COLUMNS[n]["unit"] == "reward" and not _any(columns.get(n))}
    return (names | {changed}) & columns.keys() or {"mask"}


def _any(values: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether any number is not 0."""
    return any(_any(v) for v in values) if isinstance(values, list) else bool(values)


def _length_differs(columns: Mapping[str, Any]) -> bool:
    """Whether a response is shorter than its row, or goes on after its last trained token."""
    width, lengths = len(columns["mask"][0]), columns.get("length", [])
    last = [max((t + 1 for t, trained in enumerate(row) if trained), default=width) for row in columns["mask"]]
    return any(n != width or n != end for n, end in zip(lengths, last, strict=False))


def _values(name: str, values: Any, change: Mapping[str, Any]) -> str:  # noqa: ANN401 - JSON
    if name != change.get("column"):
        return numbers(values)
    before, after = (numbers(float(change[when])) for when in ("before", "after"))
    more = f"  (and {change['cells'] - 1} more cells)" if change["cells"] > 1 else ""
    return numbers(values, change["cell"], f"{before} -> {after}") + more


def _excluded_rows(values: Sequence[int]) -> str:
    """Why rows are excluded from training: ``row 1: rejected``; empty if no row is excluded."""
    rows = {
        word: [row for row, reason in enumerate(values) if reason == n] for word, n in EXCLUDED.items() if word != "in"
    }
    return "; ".join(
        f"{'row' if len(at) == 1 else 'rows'} {', '.join(map(str, at))}: {word}" for word, at in rows.items() if at
    )
