"""PLC005 outcome-never-arrives.

What it says:
    The outcome of a response reaches its last trained token: moving it by 1 or by 100, one way or
    the other, moves the advantage there, at least once the same way, whatever token is masked.

Why it matters:
    An outcome is often written on the last token. If that token is masked, and rewards are
    multiplied by the mask, the response trains on no outcome at all. With the sign lost on the way,
    what was rewarded is unlearned.

A boundary that breaks it:
    >>> import torch
    >>> reward, mask = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> ((reward * mask).sum(1, keepdim=True) * mask).tolist()
    [[0.0, 0.0]]
    >>> (reward.sum(1, keepdim=True) * mask).tolist()
    [[1.0, 0.0]]

Where it does not apply:
    Order statistics, that few outcomes move; a row with no live sibling that has a token at the same
    position; a discount of zero; outcomes that are suppressed; rows that are steps.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.cases.comparison import advantages
from rl_sentinel.cases.preconditions import last_trained, repeats_trajectory
from rl_sentinel.cases.transforms import on_policy, outcome_moved
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation

#: How far the outcome is moved, in reward units; a standardised pair answers to one of them only.
AMOUNTS = (1.0, -1.0, 100.0, -100.0)

#: A movement below this is rounding, in reward units.
STILL = 1e-5


def _applies(boundary: Boundary) -> str:
    if boundary.claim("credit") not in ("outcome", "temporal"):
        return "it does not claim to credit an outcome"
    if boundary.claim("order-statistic") == "yes":
        return "it claims an order statistic"
    return "" if boundary.reads & {"reward", "reward_parts"} else "it reads no task reward"


def _vary(case: Case, variant: int) -> Case | None:
    batch = on_policy(case.batch)  # what a boundary rejects by log-probs need not arrive
    if repeats_trajectory(batch) or not bool(batch.scored.all()):
        return None
    at_last = batch.mask[:, last_trained(batch)].T  # [B, B]: is row j trained where row i ends
    siblings = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)) & at_last
    fit = torch.nonzero(batch.live & (siblings.sum(dim=1) >= 2)).flatten().tolist()
    return with_draw(with_batch(case, batch), variant=variant, row=fit[-variant]) if fit else None


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    row, batch, boundary = int(case.draw["row"] or 0), case.batch, ask.boundary
    knobs = {**boundary.settings.get(case.setting, {}), **case.override}
    void = bool(boundary.claim("suppresses")) and int(batch.length[row]) == batch.width
    if void or any(knobs.get(name) == 0 for name in ("gamma", "lambda")):
        return
    position = int(last_trained(batch)[row])
    before = ask(case).values
    arrived = dict.fromkeys(advantages(boundary), 0.0)
    for amount in AMOUNTS:
        other = outcome_moved(batch, boundary.reads, torch.arange(batch.rows) == row, amount)
        after = ask(with_batch(case, other)).values
        for name in arrived:
            here = (row, position)[: before[name].dim()]
            way = (after[name][here] - before[name][here]) * (1 if amount > 0 else -1)
            if not way <= STILL:  # nan is DEG001's
                arrived[name] = 1.0
    story = (
        f"the outcome of row {row}, a response of {int(batch.length[row])} tokens, was moved by 1 and by 100, "
        f"up and down: how often its last trained token, at position {position}, followed (1: once or more)"
    )
    for name, answer in arrived.items():
        yield Relation(name, torch.tensor(1.0), torch.tensor(answer), tolerance=0.5, story=story)


LAW = Law(
    code="PLC005",
    name="outcome-never-arrives",
    stages=frozenset({"advantage"}),
    applies=_applies,
    vary=_vary,
    relate=_relate,
    variants=2,
)
