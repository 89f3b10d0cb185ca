"""Find a compared tensor in the outputs of the runs: the run, the rows and the positions."""

from collections.abc import Sequence

from torch import Tensor

from rl_sentinel.audit.repro.provenance import View
from rl_sentinel.audit.repro.recorded_run import Run
from rl_sentinel.core.call import same_numbers
from rl_sentinel.core.expectations import Pair


def matching_views(
    pair: Pair, runs: Sequence[Run], expected: View | None, observed: View | None
) -> tuple[View | None, View] | None:
    """The views of the expected tensor (None for a literal) and of the observed tensor, which are searched if unknown.

    The observed tensor is searched from the last run on, the expected tensor from the first. Returns None if no run
    holds the observed tensor.
    """
    observed = observed or next(
        (view for n in reversed(range(len(runs))) if (view := _view(n, runs[n], pair.output, pair.observed))), None
    )
    if observed is None:
        return None
    others = [n for n in range(len(runs)) if n != observed.run]
    if pair.expected is not None and expected is None:
        expected = next((view for n in others if (view := _view(n, runs[n], pair.output, pair.expected))), None)
    return expected, observed


def _view(number: int, run: Run, output: str, tensor: Tensor) -> View | None:
    output_tensor = run.outputs.get(output)
    if output_tensor is None:
        return None
    if same_numbers(output_tensor, tensor):
        return View(number)
    if output_tensor.dim() != tensor.dim() or not output_tensor.dim() or output_tensor.shape[1:] != tensor.shape[1:]:
        narrow = output_tensor.dim() == 2 and tensor.dim() == 2 and output_tensor.shape[1] > tensor.shape[1]
        fits = narrow and same_numbers(output_tensor[:, : tensor.shape[1]], tensor)
        return View(number, f"[:, :{tensor.shape[1]}]") if fits else None
    rows = _rows(output_tensor, tensor)
    return View(number, f"[{rows}]") if rows else None


def _rows(output_tensor: Tensor, tensor: Tensor) -> list[int]:
    """For each row of ``tensor``, the index of an equal row of the output, each used once; empty if one is missing."""
    rows: list[int] = []
    for row in tensor:
        match = next(
            (n for n, candidate in enumerate(output_tensor) if n not in rows and same_numbers(candidate, row)), None
        )
        if match is None:
            return []
        rows.append(match)
    return rows
