"""RNK001 better-response-ranked-below: of two responses to one prompt, the better one gets the lower advantage.

What it says:
    Of two responses to one prompt that differ only in reward, the better one never has the lower advantage: if they
    swap their rewards, the advantage of the response that becomes worse does not rise. A response that is alone in its
    group never gets a lower advantage for a higher reward.

Why it matters:
    An estimator that ranks the worse response above the better one trains the policy against its reward. A
    flipped sign, a sort in the wrong direction or a reward read from another row all look like noise in a curve.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.tensor([1.0, 0.0])
    >>> (reward.mean() - reward).tolist()  # the sign is flipped
    [-0.5, 0.5]

How to fix it:
    Look for a dropped minus sign, a descending sort, or rewards that are read at another row's index. A group
    estimator of ``rl_sentinel.signal.advantage``, such as ``rl_sentinel.signal.advantage.grpo.advantages``,
    keeps the order.

Where it does not apply:
    Boundaries that read no task reward or return no advantage. Two responses are compared only if a relative baseline
    is claimed, in batches without a row that is dead, suppressed, alone in its group, masked at its last token, or one
    step of a trajectory. A lone response is tested only if credit by outcome (``credit: outcome``) and the scope group
    are claimed, in batches without any other of these rows.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.batch import COLUMNS, Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Expectation, Within
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import advantages, magnitude
from rl_sentinel.search.preconditions import (
    distinct,
    groups_recognizable,
    last_trained,
    outcomes_compare,
    repeats_trajectory,
)
from rl_sentinel.search.transforms import on_policy, outcome_moved

#: Difference of the two rewards, in reward units; one per variant, for two rows and then for a lone one.
AMOUNTS = (1.0, 100.0)

#: Columns in which two responses of one prompt may differ.
_OWN = frozenset({"trajectory"})


def _applies(boundary: Boundary) -> str:
    if not _is_relative(boundary) and not _credits_lone(boundary):
        return "the boundary does not claim a relative baseline"
    if not boundary.reads & {"reward", "reward_parts"}:
        return "the boundary reads no task reward"
    return "" if advantages(boundary) else "the boundary returns no advantage"


def _is_relative(boundary: Boundary) -> bool:
    return value_of(boundary.claims.baseline) == "relative"


def _credits_lone(boundary: Boundary) -> bool:
    return value_of(boundary.claims.credit) == "outcome" and value_of(boundary.claims.scope) == "group"


def _siblings(batch: Batch) -> tuple[int, int] | None:
    """The first two rows of one group, or None if no group has two rows."""
    for label in distinct(batch.group):
        rows = torch.nonzero(batch.group == label).flatten().tolist()
        if len(rows) > 1:
            return rows[0], rows[1]
    return None


def _lone(batch: Batch) -> int | None:
    """The first row without siblings, if all rows are separate trajectories, scored and trained to their last token."""
    ends = batch.live & batch.scored & (last_trained(batch) == batch.length - 1)
    if repeats_trajectory(batch) or not bool(ends.all()):
        return None
    alone = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).sum(dim=1) == 1
    return int(alone.int().argmax()) if bool(alone.any()) else None


def _vary(case: Case, variant: int) -> Case | None:
    if variant >= len(AMOUNTS):
        lone, even = _lone(case.batch), with_batch(case, on_policy(case.batch))
        return None if lone is None else with_draw(even, variant=variant, row=lone, amount=AMOUNTS[variant % 2])
    pair = _siblings(case.batch)
    if pair is None or not outcomes_compare(case.batch):
        return None
    even = with_batch(case, on_policy(case.batch))  # a rejected sibling is not compared
    return with_draw(even, variant=variant, row=pair[0], sibling=pair[1], amount=AMOUNTS[variant])


def _alike(batch: Batch, row: int, sibling: int, amount: float) -> Batch:
    """The batch with ``sibling`` replaced by a copy of ``row`` whose reward is lower by ``amount``."""
    source = torch.arange(batch.rows, device=batch.device)
    source[sibling] = row
    copied = {name: getattr(batch, name)[source] for name in COLUMNS if name not in _OWN}
    worse = (torch.arange(batch.rows, device=batch.device) == sibling) * amount
    return with_columns(
        batch,
        **copied | {"reward": copied["reward"] - worse, "reward_parts": copied["reward_parts"] - worse.unsqueeze(1)},
    )


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    lone = int(case.draw["variant"] or 0) >= len(AMOUNTS)
    if not (_credits_lone if lone else _is_relative)(ask.boundary) or not groups_recognizable(ask.boundary, case.batch):
        return
    yield from (_alone if lone else _compared)(ask, case)


def _alone(ask: Ask, case: Case) -> Iterator[Expectation]:
    row, amount, batch = int(case.draw["row"] or 0), float(case.draw["amount"] or 0), case.batch
    here = torch.arange(batch.rows, device=batch.device) == row
    raised = outcome_moved(batch, ask.boundary.reads, here, amount)
    before, after = ask(case).values, ask(with_batch(case, raised)).values
    scale = magnitude(raised, ask.boundary.reads)
    for name in advantages(ask.boundary):
        where = here.unsqueeze(1) & batch.mask if before[name].dim() == 2 else here
        where = where & before[name].isfinite() & after[name].isfinite()  # DEG001 asks for a number
        reason = f"it is alone in its group, and its reward is higher by {amount:g} than in the other call"
        yield Within(name, after[name], before[name], None, where, scale, reason=reason, between_calls=True)


def _compared(ask: Ask, case: Case) -> Iterator[Expectation]:
    row, sibling, amount = int(case.draw["row"] or 0), int(case.draw["sibling"] or 0), float(case.draw["amount"] or 0)
    boundary = ask.boundary
    batch = _alike(case.batch, row, sibling, amount)
    swap = torch.arange(batch.rows, device=batch.device)
    swap[row], swap[sibling] = sibling, row
    swapped = with_columns(batch, reward=batch.reward[swap], reward_parts=batch.reward_parts[swap])
    better, worse = ask(with_batch(case, batch)).values, ask(with_batch(case, swapped)).values
    scale = magnitude(batch, boundary.reads)
    here = torch.arange(batch.rows, device=batch.device) == row
    for name in advantages(boundary):
        where = here.unsqueeze(1) & batch.mask if better[name].dim() == 2 else here
        higher = f"the reward of row {row} is higher by {amount:g} than in the other call"
        reason = f"{higher}, where rows {row} and {sibling} have each other's rewards"
        yield Within(name, better[name], worse[name], None, where, scale, reason=reason, between_calls=True)


LAW = Law(
    code="RNK001",
    name="better-response-ranked-below",
    stages=frozenset({"normalize", "advantage"}),
    claims=("baseline", "credit", "grouping", "scope"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=2 * len(AMOUNTS),
)
