"""PUR001 input-is-mutated: a call changes its arguments in place.

What it says:
    A call does not change the columns that it receives, at trained tokens and in live rows, unless the boundary claims
    to write them. The same holds for every tensor that the target's own functions receive.

Why it matters:
    The same tensors are used later by the loss and the logs. A KL that was subtracted in place from the
    rewards is then logged as reward, and a second pass over the batch subtracts it again.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.tensor([1.0, 3.0])
    >>> advantage = reward.sub_(reward.mean())
    >>> reward.tolist()
    [-1.0, 1.0]

How to fix it:
    Replace in-place operations (``-=``, ``mul_``, ``batch[key] = ...``) by new tensors. All functions of
    ``rl_sentinel.signal`` return new tensors.

Where it does not apply:
    Boundaries that claim to write all that they read. Masked positions may change. So may an argument that holds a
    column which the boundary claims to write, and an argument whose shape does not show which cells are trained tokens,
    such as prompt and response in one row. Adding an entry to a table does not change the tensors in it.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import SIGNAL_STAGES, cells

#: Reason of the expectation, and subject of its sentence.
REASON, CALL = "an input must not be changed", Change("the call")


def _applies(boundary: Boundary) -> str:
    return "" if boundary.reads - boundary.writes else "the boundary claims to write every column that it reads"


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch = case.batch
    seen = ask(case, watched=True)
    after = seen.inputs_after
    for name in sorted(ask.boundary.reads - ask.boundary.writes):
        column = getattr(batch, name)
        trained = batch.mask if COLUMNS[name]["axes"].startswith("B T") else batch.live
        yield Equal(name, column, after[name], cells(trained, column), tolerance=0.0, change=CALL, reason=REASON)
    claimed = [getattr(batch, name) for name in ask.boundary.writes]
    for name, (before, now) in seen.arguments.items():
        if any(before.shape == c.shape and bool((before == c).all()) for c in claimed):
            continue
        where = _compared_cells(batch, before)
        if where is None:
            continue
        yield Equal(f"argument {name}", before, now, where, tolerance=0.0, change=CALL, reason=REASON)


def _compared_cells(batch: Batch, argument: Tensor) -> Tensor | None:
    """True at the cells of an argument to compare; None if its shape does not show which cells are trained.

    A 1-D tensor with one cell per row is compared over live rows if there are more rows than positions. Any other 1-D
    tensor may hold rows or packed tokens, so it is compared only if every token is trained.
    """
    rows, width = batch.mask.shape
    if argument.shape[:2] == batch.mask.shape:
        return cells(batch.mask, argument)
    if argument.shape[:1] == (rows,) and argument.dim() == 1 and rows > width:
        return batch.live
    plain = argument.numel() in (rows, width, rows * width) and argument.dim() == 1 and bool(batch.mask.all())
    return torch.ones_like(argument, dtype=torch.bool) if plain or argument.dim() == 0 else None


LAW = Law(
    code="PUR001",
    name="input-is-mutated",
    stages=SIGNAL_STAGES | {"batch"},
    applies=_applies,
    vary=_vary,
    expect=_expect,
    few_cases=True,
)
