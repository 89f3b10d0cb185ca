"""MSK001 dead-row-shifts-signal.

What it says:
    A row with no trained token has no influence on another row's advantage, keep-decision or loss:
    moving its reward, log-probs or values by 1 and by 100, either way, moves nothing there.

Why it matters:
    A rejected or padded response trains nothing itself. If its reward still enters a baseline, its
    siblings are pushed up or down by a sample that the run has thrown away.

A boundary that breaks it:
    >>> import torch
    >>> reward, live = torch.tensor([1.0, 0.0, 100.0]), torch.tensor([True, True, False])
    >>> ((reward - reward.mean()) * live).tolist()
    [-32.66666793823242, -33.66666793823242, 0.0]
    >>> torch.where(live, reward - reward[live].mean(), 0.0).tolist()
    [0.5, -0.5, 0.0]

Where it does not apply:
    Boundaries that read no mask. Rows that train are MSK002's and GRP001's subject.

Seen in:
    verl 0.2 to 0.9.1, the group estimators (upstream pull request 6452).
"""

from collections.abc import Iterator

import torch

from rl_sentinel.cases.comparison import magnitude, same_rows
from rl_sentinel.cases.transforms import moved
from rl_sentinel.core.batch import COLUMNS, EXCLUDED
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.law import Law, Level
from rl_sentinel.core.observation import Ask, Relation

#: How far a cell of the dead row is moved, in the unit of its column.
AMOUNTS = (1.0, -1.0, 100.0, -100.0)


def _applies(boundary: Boundary) -> str:
    return "" if "mask" in boundary.reads else "it reads no mask"


def _dead(case: Case) -> int | None:
    dead = torch.nonzero(~case.batch.live).flatten().tolist()
    return dead[0] if dead and bool(case.batch.live.any()) else None


def _vary(case: Case, variant: int) -> Case | None:
    row = _dead(case)
    return None if row is None else with_draw(case, variant=variant, row=row)


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    row, batch = int(case.draw["row"] or 0), case.batch
    before = ask(case)
    there = torch.arange(batch.rows) == row
    signals = [n for n in sorted(ask.boundary.reads) if COLUMNS[n]["role"] == "signal"]
    for column in sorted(signals, key=lambda n: "reward" not in n):
        for amount in AMOUNTS:
            other = moved(batch, column, there, amount)
            after = ask(with_batch(case, other))
            story = f"row {row} has no trained token; its {column} moved by {amount:+g}"
            scale = magnitude(other, ask.boundary.reads)
            yield from same_rows(
                ask.boundary, batch, before, after, rows=batch.live, story=story, scale=scale
            )


def _level(case: Case) -> Level:
    out = case.batch.excluded[~case.batch.live]
    argued = (out == EXCLUDED["rejected"]) | (out == EXCLUDED["truncated"])
    return "contested" if bool(argued.any()) else "fault"


LAW = Law(
    code="MSK001",
    name="dead-row-shifts-signal",
    stages=frozenset({"normalise", "kl", "correct", "advantage", "policy-loss", "value-loss", "aggregate"}),
    applies=_applies,
    vary=_vary,
    relate=_relate,
    level=_level,
    intended="A rejected response was still sampled, so its reward is an unbiased sample for the baseline.",
)
