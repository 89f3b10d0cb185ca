"""PLC005 outcome-never-arrives: the outcome of a response does not reach its last trained token.

What it says:
    The outcome of a response reaches its last trained token, whatever token is masked. It is moved by 1 and by 100, up
    and down, on the batch as it is and with all outcomes raised by 1: for at least one of these changes, the advantage
    there moves in the same direction. The outcome of a trajectory is at its last step. It reaches each step that
    trains, also if the last step does not.

Why it matters:
    An outcome is often written on the last token. If that token is masked, and rewards are multiplied by the mask, the
    response trains on no outcome at all. If the sign is lost on the way, rewarded behavior is unlearned.

A boundary that breaks it:
    >>> import torch
    >>> reward, mask = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> ((reward * mask).sum(1, keepdim=True) * mask).tolist()
    [[0.0, 0.0]]
    >>> (reward.sum(1, keepdim=True) * mask).tolist()
    [[1.0, 0.0]]

How to fix it:
    Write the outcome at the last trained token, not at the last position: ``rl_sentinel.signal.align.at_last``.
    For trajectories of several steps give each step its trajectory's outcome:
    ``rl_sentinel.signal.steps.over_trajectories``.

Where it does not apply:
    Boundaries that claim no credit (``credit``) or read no task reward. Order statistics, which few outcomes move. Rows
    with no live sibling that has a token at the same position, trajectories whose prompt has no other live trajectory,
    and outcomes that are suppressed. A discount or decay of zero. Steps are joined only where that is claimed and the
    whole trajectory is credited.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Expectation, Moves
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import advantages, change_of
from rl_sentinel.search.preconditions import distinct, last_trained, repeats_trajectory
from rl_sentinel.search.transforms import on_policy, outcome_moved

#: How far the outcome is moved, in reward units; a standardized pair answers to one of them only.
AMOUNTS = (1.0, -1.0, 100.0, -100.0)

#: A movement below this is rounding, in reward units.
STILL = 1e-5


def _applies(boundary: Boundary) -> str:
    if boundary.claims.credit is None:
        return "the boundary does not claim to credit an outcome"
    if boundary.claims.order_statistic:
        return "the boundary claims an order statistic"
    return "" if boundary.reads & {"reward", "reward_parts"} else "the boundary reads no task reward"


def _vary(case: Case, variant: int) -> Case | None:
    batch = on_policy(case.batch)  # what a boundary rejects by log-probs need not arrive
    rows = _compared(batch)
    return with_draw(with_batch(case, batch), variant=variant, row=rows[-variant]) if rows else None


def _compared(batch: Batch) -> list[int]:
    """Rows whose outcome is compared with another: a sibling has a trained token at the row's last trained position.

    If trajectories have several steps, their last steps: the trajectory must have a trained token, and so must another
    trajectory of the same prompt. Empty if a row is not scored, or a trajectory does not have exactly one last step.
    """
    if not bool(batch.scored.all()) or sorted(batch.trajectory[batch.last_step].tolist()) != distinct(batch.trajectory):
        return []
    if repeats_trajectory(batch):
        return [row for row in torch.nonzero(batch.last_step).flatten().tolist() if _has_rival(batch, row)]
    at_last = batch.mask[:, last_trained(batch)].T  # [B, B]: is row j trained where row i ends
    siblings = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)) & at_last
    rows: list[int] = torch.nonzero(batch.live & (siblings.sum(dim=1) >= 2)).flatten().tolist()
    return rows


def _has_rival(batch: Batch, row: int) -> bool:
    same = batch.trajectory == batch.trajectory[row]
    rivals = (batch.group == batch.group[row]) & ~same & batch.live
    return bool((same & batch.live).any()) and bool(rivals.any())


def _reached(boundary: Boundary, batch: Batch, row: int) -> Tensor:
    """The rows ``[B]`` that the outcome of ``row`` must reach under the boundary's claims."""
    if row not in _compared(batch):
        return torch.zeros(batch.rows, dtype=torch.bool, device=batch.device)
    if not repeats_trajectory(batch):
        return torch.arange(batch.rows, device=batch.device) == row
    joined = value_of(boundary.claims.trajectories) == "step-wise" and value_of(boundary.claims.credit) == "outcome"
    return (batch.trajectory == batch.trajectory[row]) & batch.live & joined


def _last_trained(batch: Batch, rows: Tensor, like: Tensor) -> Tensor:
    """True at the last trained token of each row in ``rows`` (``[B]``), in the shape of the output ``like``.

    If the output has one number per row, ``rows`` itself.
    """
    last = torch.arange(batch.width, device=batch.device) == last_trained(batch).unsqueeze(1)
    return rows if like.dim() == 1 else rows.unsqueeze(1) & last


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    row, batch, boundary = int(case.draw["row"] or 0), case.batch, ask.boundary
    settings = boundary.settings_of(case)
    reached = _reached(boundary, batch, row)
    void = boundary.claims.suppresses is not None and bool((batch.length[reached] == batch.width).any())
    if void or not bool(reached.any()) or any(settings.get(name) == 0 for name in ("gamma", "lambda")):
        return
    before = ask(case).values
    places = {name: _last_trained(batch, reached, before[name]) for name in advantages(boundary)}
    arrived = {name: torch.zeros_like(where) for name, where in places.items()}
    changed, after, amount = _move(ask, case, places, arrived)
    if not _all_arrived(places, arrived):  # a share of the mean of a pair is the same for all rewards beside a 0
        everyone = torch.ones(batch.rows, dtype=torch.bool, device=batch.device)
        _move(ask, with_batch(case, outcome_moved(batch, boundary.reads, everyone, 1.0)), places, arrived)
    column = "reward" if "reward" in boundary.reads else "reward_parts"
    change = change_of(column, batch, changed, f"the outcome of row {row}")
    reason = "an outcome must reach the last trained token of its response"
    if bool((reached & (torch.arange(batch.rows, device=batch.device) != row)).any()):
        steps = f"both rows are steps of trajectory {int(batch.trajectory[row])}"
        reason = f"{steps}, and each step that is trained must get its outcome"
    direction = 1 if amount > 0 else -1
    for name, moved in arrived.items():
        results = {name: (before[name], after[name])}
        yield Moves(name, change, moved, results, places[name], direction=direction, still=STILL, reason=reason)


def _move(
    ask: Ask, case: Case, places: Mapping[str, Tensor], arrived: dict[str, Tensor]
) -> tuple[Batch, Mapping[str, Tensor], float]:
    """Move the outcome of a row until it has arrived everywhere, and note in ``arrived`` where it has.

    Returns the last batch, the outputs for it, and the last amount.
    """
    changed, before, amount = case.batch, ask(case).values, 0.0
    after, row = before, torch.arange(case.batch.rows, device=case.batch.device) == int(case.draw["row"] or 0)
    for amount in AMOUNTS:
        changed = outcome_moved(case.batch, ask.boundary.reads, row, amount)
        after = ask(with_batch(case, changed)).values
        for name in places:
            rise = (after[name] - before[name]) * (1 if amount > 0 else -1)
            arrived[name] = arrived[name] | ~(rise <= STILL)  # DEG001 reports nan
        if _all_arrived(places, arrived):
            break
    return changed, after, amount


def _all_arrived(places: Mapping[str, Tensor], arrived: Mapping[str, Tensor]) -> bool:
    return all(bool(arrived[name][where].all()) for name, where in places.items())


LAW = Law(
    code="PLC005",
    name="outcome-never-arrives",
    stages=frozenset({"advantage"}),
    claims=("credit", "order_statistic", "suppresses", "trajectories"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=2,
)
