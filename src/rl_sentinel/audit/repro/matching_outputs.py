"""Find the run of a boundary that holds a compared tensor, and its rows and positions there."""

from collections.abc import Sequence

from torch import Tensor

from rl_sentinel.audit.repro.provenance import View
from rl_sentinel.audit.repro.recorded_run import Run
from rl_sentinel.core.expectations import Pair


def sides(
    pair: Pair, runs: Sequence[Run], expected: View | None, observed: View | None
) -> tuple[View | None, View] | None:
    """The views of the expected tensor (None for a literal) and the observed tensor (in the last run that holds it)."""
    observed = observed or next(
        (view for n in reversed(range(len(runs))) if (view := _view(n, runs[n], pair.output, pair.observed))), None
    )
    if observed is None:
        return None
    others = [n for n in range(len(runs)) if n != observed.run]
    if pair.expected is not None and expected is None:
        expected = next((view for n in others if (view := _view(n, runs[n], pair.output, pair.expected))), None)
    return expected, observed


def _view(number: int, run: Run, output: str, wanted: Tensor) -> View | None:
    held = run.outputs.get(output)
    if held is None:
        return None
    if _equal(held, wanted):
        return View(number)
    if held.dim() != wanted.dim() or not held.dim() or held.shape[1:] != wanted.shape[1:]:
        narrow = held.dim() == 2 and wanted.dim() == 2 and held.shape[1] > wanted.shape[1]
        fits = narrow and _equal(held[:, : wanted.shape[1]], wanted)
        return View(number, f"[:, :{wanted.shape[1]}]") if fits else None
    rows = _rows(held, wanted)
    return View(number, f"[{rows}]") if rows else None


def _rows(held: Tensor, wanted: Tensor) -> list[int]:
    """The indices of the wanted rows in a tensor, each used once; empty if some are missing."""
    rows: list[int] = []
    for row in wanted:
        match = next((n for n, other in enumerate(held) if n not in rows and _equal(other, row)), None)
        if match is None:
            return []
        rows.append(match)
    return rows


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    a, b = one.detach().double(), other.detach().double()
    return bool(((a == b) | (a.isnan() & b.isnan())).all())
