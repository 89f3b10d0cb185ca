"""Trace the numbers of an expectation to a run of the boundary and to cells of its output."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.call import same_numbers
from rl_sentinel.core.case import Case
from rl_sentinel.core.expectations import Pair
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Observation

#: Number of marks reserved for each run.
_STRIDE = 2**30


class View(NamedTuple):
    """The source of a tensor in a script: the output of a run, or the cells that the expression ``cut`` selects in it.

    ``cut`` follows the output, as in ``[[0, 2]]``; it is empty for the whole output.
    """

    run: int
    cut: str = ""


@dataclass(slots=True)
class Marker:
    """A fake ``Ask`` that repeats the recorded results of a law's calls, with marks instead of the outputs' numbers.

    A mark tells the run and the cell; the outputs of one run have the same marks. Gradients keep their numbers.
    """

    boundary: Boundary
    answers: Sequence[Observation]
    calls: int = field(default=0, init=False)

    def __call__(
        self,
        case: Case,  # noqa: ARG002 - the calls of a law on one case always have the same order
        /,
        *,
        gradients: Iterable[str] = (),  # noqa: ARG002
        on: str | None = None,  # noqa: ARG002
        fresh: bool = False,  # noqa: ARG002
        watched: bool = False,  # noqa: ARG002
    ) -> Observation:
        """Return the next result: cell ``i`` of run ``n`` holds ``n * _STRIDE + i + 1``."""
        answer, start = self.answers[self.calls], self.calls * _STRIDE + 1
        self.calls += 1
        marks = {
            name: (torch.arange(value.numel(), dtype=torch.float64) + start).reshape(value.shape)
            for name, value in answer.values.items()
        }
        return replace(answer, values=marks)


def views(
    law: Law, case: Case, ask: Marker, number: int, pairs: Sequence[Pair]
) -> list[tuple[View | None, View | None]]:
    """For each pair of the ``number``-th expectation: the views of the expected and of the observed tensor.

    The law runs again on marks, so that equal numbers are not confused. A view is None if its numbers are not from one
    run; all are None if the law makes other calls on marks or raises an exception.
    """
    try:
        marked = next(islice(law.expect(ask, case), number, None)).pairs()
    except Exception:  # noqa: BLE001 - a law may compute with the numbers, and marks are not numbers
        return [(None, None)] * len(pairs)
    same_calls = ask.calls == len(ask.answers)  # a law that branches on the numbers may have taken another branch
    if not same_calls or [mark.output for mark in marked] != [pair.output for pair in pairs]:
        return [(None, None)] * len(pairs)
    return [
        (
            None if mark.expected is None else _view(mark.expected, pair.expected, pair.output, ask.answers),
            _view(mark.observed, pair.observed, pair.output, ask.answers),
        )
        for mark, pair in zip(marked, pairs, strict=True)
    ]


def _view(marks: Tensor, tensor: Tensor | None, output: str, answers: Sequence[Observation]) -> View | None:
    """The view that a tensor of marks describes; None if the tensor is not a view, or lacks the compared numbers."""
    cells = marks.detach().double()
    if not cells.numel() or not bool(((cells == cells.round()) & (cells > 0)).all()):
        return None
    runs = {int(run) for run in ((cells - 1) // _STRIDE).flatten().tolist()}
    run = min(runs)
    if len(runs) != 1 or run >= len(answers) or output not in answers[run].values:
        return None
    source = answers[run].values[output].detach()
    indices = ((cells - 1) % _STRIDE).long()
    if int(indices.max()) >= source.numel():
        return None  # small whole numbers come from the batch and are not marks
    same = tensor is not None and same_numbers(source.flatten()[indices], tensor)
    return View(run, _cut(indices, source.shape)) if same else None


def _cut(indices: Tensor, shape: torch.Size) -> str:
    """The expression that selects the cells at ``indices`` (flat indices): rows and first columns, or single cells."""
    cells = torch.arange(shape.numel()).reshape(shape)
    if torch.equal(indices, cells):
        return ""
    if shape and indices.dim() == len(shape) and indices.shape[2:] == shape[2:]:
        rows = (indices.reshape(indices.shape[0], -1)[:, 0] // max(1, shape[1:].numel())).tolist()
        columns = indices.shape[1] if indices.dim() > 1 else 1
        narrow = indices.dim() > 1 and columns < shape[1]
        if torch.equal(cells[rows][:, :columns] if narrow else cells[rows], indices):
            chosen = "" if rows == list(range(shape[0])) else f"[{rows}]"
            return f"{chosen}[:, :{columns}]" if narrow else chosen
    return f".flatten()[torch.tensor({indices.tolist()})]"
