"""GRP001 group-leaks-into-group: a reward changes the results of another prompt's responses.

What it says:
    If a boundary claims that responses are compared only within their prompt, or not at all, changing the reward of a
    response changes nothing for other prompts.

Why it matters:
    Rewards of different prompts differ by difficulty. A statistic that mixes them makes the advantage of a response
    depend on unrelated prompts in the batch.

A boundary that breaks it:
    >>> import torch
    >>> reward, group = torch.tensor([1.0, 0.0, 9.0, 7.0]), torch.tensor([0, 0, 1, 1])
    >>> mean = torch.stack([reward[group == g].mean() for g in group])
    >>> ((reward - mean) / reward.std()).tolist()[:2] == ((reward - mean) / 4).tolist()[:2]
    False
    >>> (reward - mean).tolist()
    [0.5, -0.5, 1.0, -1.0]

How to fix it:
    Compute the mean and the deviation per prompt: ``rl_sentinel.signal.groups.centered``. If a statistic of the
    whole batch is intended, as in REINFORCE++, do not claim a group scope.

Where it does not apply:
    Boundaries that claim no scope or read no reward, and boundaries or outputs with the scope batch: statistics over
    the batch are a choice. Numbers for the whole batch.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import change_of, magnitude, same_rows
from rl_sentinel.search.preconditions import distinct, groups_recognizable
from rl_sentinel.search.transforms import moved

#: Number of rows that are changed, one per variant: the first live row and the last one.
ENDS = 2

#: Change of the reward, in reward units.
AMOUNTS = (1.0, -1.0, 100.0, -100.0)


def _rewards(boundary: Boundary) -> list[str]:
    """The reward columns that the boundary reads, with the task reward first."""
    signals = {n for n in boundary.reads if "reward" in n and COLUMNS[n]["role"] == "signal"}
    return sorted(signals, key=lambda n: (n != "reward", n))


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.scope) in (None, "batch"):
        return "the boundary claims no scope, or the scope batch"
    return "" if _rewards(boundary) else "the boundary reads no reward"


def _vary(case: Case, variant: int) -> Case | None:
    live = torch.nonzero(case.batch.live).flatten().tolist()
    if len(distinct(case.batch.group[live])) < 2:
        return None
    row, amount = variant % ENDS, AMOUNTS[variant // ENDS]
    return with_draw(case, variant=variant, row=live[-row], amount=amount)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    row, amount, batch = int(case.draw["row"] or 0), float(case.draw["amount"] or 0), case.batch
    if not groups_recognizable(ask.boundary, batch):
        return
    others = batch.live & (batch.group != batch.group[row])
    wide = [n for n, output in ask.boundary.outputs.items() if output.scope == "batch" or output.axes == ""]
    before = ask(case)
    for column in _rewards(ask.boundary):
        other = moved(batch, column, torch.arange(batch.rows, device=batch.device) == row, amount)
        after = ask(with_batch(case, other))
        change = change_of(column, batch, other, f"its {column}")
        reason = f"row {row} must influence its own group only"
        size = magnitude(other, ask.boundary.reads)
        yield from same_rows(
            ask.boundary,
            batch,
            before,
            after,
            rows=others,
            change=change,
            reason=reason,
            scale=size,
            skip=wide,
        )


LAW = Law(
    code="GRP001",
    name="group-leaks-into-group",
    stages=frozenset({"reward", "normalize", "correct", "advantage"}),
    claims=("grouping", "scope"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=ENDS * len(AMOUNTS),
)
