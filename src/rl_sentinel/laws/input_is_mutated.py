"""PUR001 input-is-mutated.

What it says:
    After the call, every column that the boundary was given and does not claim to write has the
    values that it had, at trained tokens and in live rows.

Why it matters:
    The same tensors go on to the loss and to the logs. A KL that was subtracted in place from the
    rewards is then logged as reward, and a second pass over the batch subtracts it again.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.tensor([1.0, 3.0])
    >>> advantage = reward.sub_(reward.mean())
    >>> reward.tolist()
    [-1.0, 1.0]

Where it does not apply:
    Boundaries that claim to write all that they read. What stands in masked positions is free.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.cases.comparison import SIGNAL_STAGES, cells
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation


def _applies(boundary: Boundary) -> str:
    return "" if boundary.reads - boundary.writes else "it claims to write all that it reads"


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    batch = case.batch
    after = ask(case).inputs_after
    for name in sorted(ask.boundary.reads - ask.boundary.writes):
        column = getattr(batch, name)
        trained = batch.mask if COLUMNS[name]["axes"].startswith("B T") else batch.live
        story = f"{name} before the call and after it"
        yield Relation(name, column, after[name], cells(trained, column), tolerance=0.0, story=story)


LAW = Law(
    code="PUR001",
    name="input-is-mutated",
    stages=SIGNAL_STAGES,
    applies=_applies,
    vary=_vary,
    relate=_relate,
)
