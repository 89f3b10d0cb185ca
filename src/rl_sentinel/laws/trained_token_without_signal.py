"""PLC001 trained-token-without-signal: an outcome moves only some of the trained tokens of its trajectory.

What it says:
    Where the outcome is claimed to credit a whole response, moving a trajectory's outcome moves all
    its trained tokens, of every step, in the same direction, or none of them.

Why it matters:
    A token that is trained with advantage zero is not neutral: it changes the denominators of its siblings. In
    step-wise training most tokens of a trajectory belong to steps other than the last.

A boundary that breaks it:
    >>> import torch
    >>> last_step, first_step = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 1.0]])
    >>> (last_step * first_step).tolist()
    [[1.0, 0.0, 0.0]]
    >>> (last_step[:, :1] * first_step).tolist()
    [[1.0, 1.0, 1.0]]

How to fix it:
    Give every step of a trajectory the trajectory's advantage: ``rl_sentinel.signal.steps.over_trajectories``. Or do
    not train the tokens that get no advantage.

Where it does not apply:
    Estimators that spread credit over time or read no task reward, and outcomes that move nothing at all (an order
    statistic, a lone response). Steps are joined only where that is claimed.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Expectation, Moves
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import advantages, change_of, magnitude
from rl_sentinel.search.preconditions import distinct, repeats_trajectory
from rl_sentinel.search.transforms import on_policy, outcome_moved

#: Number of trajectories whose outcomes are changed, one at a time.
TRAJECTORIES = 2

#: How far the outcome is moved, in reward units.
AMOUNTS = (1.0, -1.0)

#: A movement below this share of the magnitudes that enter is rounding.
ROUNDING = 1e-5


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.credit) != "outcome":
        return "the boundary does not claim that the outcome credits the whole response"
    return "" if boundary.reads & {"reward", "reward_parts"} else "the boundary reads no task reward"


def _vary(case: Case, variant: int) -> Case | None:
    batch = on_policy(case.batch)  # a KL term in the reward may rightly move tokens differently
    ids, number = distinct(batch.trajectory), variant % TRAJECTORIES
    if number >= len(ids) or bool(batch.token_reward.any()) or not bool(batch.scored.all()):
        return None
    rows = batch.trajectory == ids[number]
    if not bool(batch.live[rows].all()) or int(batch.last_step[rows].sum()) != 1:
        return None
    chosen = {"trajectory": ids[number], "amount": AMOUNTS[variant // TRAJECTORIES]}
    return with_draw(with_batch(case, batch), variant=variant, **chosen)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch, boundary = case.batch, ask.boundary
    if repeats_trajectory(batch) and value_of(boundary.claims.trajectories) != "step-wise":
        return
    rows = batch.trajectory == int(case.draw["trajectory"] or 0)
    amount = float(case.draw["amount"] or 0)
    changed = outcome_moved(batch, boundary.reads, rows & batch.last_step, amount)
    before, after = ask(case), ask(with_batch(case, changed))
    column = "reward" if "reward" in boundary.reads else "reward_parts"
    change = change_of(column, batch, changed, f"the outcome of trajectory {case.draw['trajectory']}")
    reason = "all trained tokens of a trajectory must follow its outcome"
    for name in advantages(boundary):
        shift = after.values[name].double() - before.values[name].double()
        where = (rows.unsqueeze(1) & batch.mask) if shift.dim() == 2 else rows
        threshold = ROUNDING * (1 + magnitude(changed, boundary.reads))
        largest = shift[where][shift[where].abs().argmax()]
        if not largest.abs() > 10 * threshold:  # DEG001 reports nan
            continue
        direction = torch.where(shift.abs() > threshold, shift.sign(), torch.zeros_like(shift))
        results, up = {name: (before.values[name], after.values[name])}, int(largest.sign())
        yield Moves(name, change, direction == up, results, where, direction=up, still=threshold, reason=reason)


LAW = Law(
    code="PLC001",
    name="trained-token-without-signal",
    stages=frozenset({"advantage"}),
    claims=("credit", "trajectories"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=TRAJECTORIES * len(AMOUNTS),
)
