"""MSK001 dead-row-shifts-signal: a row without a trained token changes the results of other rows.

What it says:
    A row with no trained token has no influence on another row's advantage, keep-decision or loss:
    raising its reward, log-probs or values by 1 or by 100, or lowering them by 100, changes nothing there.

Why it matters:
    A rejected or padded response is not trained. If its reward still enters a baseline, the advantages of its siblings
    are shifted by a sample that the run has dropped.

A boundary that breaks it:
    >>> import torch
    >>> reward, live = torch.tensor([1.0, 0.0, 100.0]), torch.tensor([True, True, False])
    >>> ((reward - reward.mean()) * live).tolist()
    [-32.66666793823242, -33.66666793823242, 0.0]
    >>> torch.where(live, reward - reward[live].mean(), 0.0).tolist()
    [0.5, -0.5, 0.0]

How to fix it:
    Compute group statistics over live rows: pass ``live=live_rows(mask)`` to an estimator of
    ``rl_sentinel.signal.advantage`` (``rl_sentinel.signal.reduce.live_rows``). Reject before the baseline is
    computed, with the narrowed mask, not after it.

Where it does not apply:
    Boundaries that read no mask. Results that overflow, which MSK004 reports. Rows that train, which MSK002 and GRP001
    cover. Where steps are claimed, rows of a trajectory in which another step trains.

Seen in:
    verl 0.2 to 0.9.1, the group estimators (upstream pull request 6452).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, EXCLUDED, Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law, Level
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.search.comparison import change_of, finite_only, magnitude, not_trained, same_rows
from rl_sentinel.search.preconditions import without_influence
from rl_sentinel.search.transforms import moved

#: How far a cell of the dead row is moved, in the unit of its column; one per variant.
AMOUNTS = (1.0, 100.0, -100.0)


def _applies(boundary: Boundary) -> str:
    return "" if "mask" in boundary.reads else "the boundary reads no mask"


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if case.batch.rows > 1 else None


def _trained(batch: Batch, seen: Observation, boundary: Boundary) -> Tensor:
    """Rows ``[B]`` that still have a trained token after the boundary's rejection decisions."""
    trained = batch.mask
    for name, output in boundary.outputs.items():
        if output.quantity == "keep" and output.axes == "B T":
            trained = trained & (seen.values[name] > 0)
    return trained.any(dim=1)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch, before = case.batch, ask(case)
    live = batch.live if ask.boundary.stage == "correct" else _trained(batch, before, ask.boundary)
    dead = without_influence(ask.boundary, batch, live)
    if not bool(dead.any()) or not bool(live.any()):
        return
    row = int(torch.nonzero(dead)[0])
    units = ("reward",) if bool(batch.live[row]) else ("reward", "nats", "")
    signals = [n for n in ask.boundary.reads if COLUMNS[n]["role"] == "signal" and COLUMNS[n]["unit"] in units]
    amount, there = AMOUNTS[int(case.draw["variant"] or 0)], torch.arange(batch.rows, device=batch.device) == row
    for column in sorted(signals, key=lambda n: ("reward" not in n, n)):
        other = moved(batch, column, there, amount)
        after = ask(with_batch(case, other))
        change = change_of(column, batch, other, f"its {column}")
        reason, scale = not_trained([row]), magnitude(other, ask.boundary.reads)
        for equal in same_rows(
            ask.boundary, batch, before, after, rows=live, change=change, reason=reason, scale=scale
        ):
            yield finite_only(equal)


def _level(case: Case) -> Level:
    out = case.batch.excluded[~case.batch.live]
    if not out.numel():  # the boundary itself rejected the row
        return "contested"
    argued = (out == EXCLUDED["rejected"]) | (out == EXCLUDED["truncated"])
    return "contested" if bool(argued.any()) else "fault"


def _intended(boundary: Boundary) -> str:
    """The reason why the influence may be intended; it depends on the stage and the claimed scope."""
    scope = value_of(boundary.claims.scope) if boundary.stage == "advantage" else None
    if scope == "group":
        return "A rejected response was still sampled, so its reward is an unbiased sample for the baseline."
    if scope == "batch":
        return (
            "A rejected response was still sampled, so its numbers belong to the mean, deviation or count of the batch "
            "by which advantages are normalized."
        )
    return "A rejected response was still sampled, so a mean over all samples includes it."


LAW = Law(
    code="MSK001",
    name="dead-row-shifts-signal",
    stages=frozenset({"normalize", "kl", "correct", "advantage", "policy-loss", "value-loss", "aggregate"}),
    claims=("scope", "trajectories"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(AMOUNTS),
    level=_level,
    intended=_intended,
)
