"""ONP002 clip-range-ends-at-old-policy: the clip range allows steps to one side of the old policy only.

What it says:
    Near a ratio of 1 nothing is clipped, on either side, and no token is counted as clipped. So the policy loss has no
    kink at 1: if the ratios of a row rise a little, the loss changes by as much as if they fall a little, in the other
    direction.

Why it matters:
    A clip range allows small steps and stops large ones. A range that begins or ends at 1 stops every step in one
    direction, however small; or it gives a weight of 1 to all tokens that became less likely. Training goes on, and
    the first update after sampling is right, so neither the loss nor ONP001 shows it.

A boundary that breaks it:
    >>> import torch
    >>> def loss(log_ratio):
    ...     logprob = torch.tensor(-2.0 + log_ratio)
    ...     weight = torch.tensor(log_ratio).exp().clamp(1 - 0.0, 1 + 5.0)  # meant: from 0 to 5
    ...     return (-weight * logprob).item()
    >>> round(loss(0.001) - loss(0.0), 3), round(loss(0.0) - loss(-0.001), 3)
    (0.001, -0.001)

How to fix it:
    Look at how the configured numbers become bounds: ``1 - low`` and ``1 + high`` need offsets, ``low`` and ``high``
    need bounds. Then choose a range with 1 between its bounds. ``rl_sentinel.signal.loss.cispo.loss`` takes offsets.

Where it does not apply:
    Losses that claim no ratio of two policies, or that claim another gradient on the first step. Boundaries that return
    no loss, or do not read advantages and the log-probs of two policies.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.formulas.allowed import LOGPROBS, kind
from rl_sentinel.search.comparison import places
from rl_sentinel.search.on_policy_step import first_step, row_constant
from rl_sentinel.search.transforms import moved

#: How far each log-prob moves: less than the clip ranges of sequence ratios.
STEP = 2e-4

#: The ratios after this step, in words.
_RATIOS = ("1.0002", "0.9998")

#: The largest log-prob, so that a raised one is still that of a probability.
_HIGHEST = -0.01

#: Rows that are moved, one after the other.
_ROWS = 3

#: A kink is a difference of the slopes on both sides by more than this share of the larger one.
_SHARE = 0.25

#: Changes smaller than this many roundings of the largest advantage, or of the loss, say nothing.
_ROUNDINGS = 16


def _applies(boundary: Boundary) -> str:
    if not boundary.claims.ratio:
        return "the boundary claims no ratio of two policies"
    if value_of(boundary.claims.on_policy_gradient) == "other":
        return "the boundary claims another gradient than the policy gradient on the first step"
    weighs = "loss" in boundary.outputs and {"logprob", "advantage"} <= boundary.reads
    asked = weighs and len(LOGPROBS & boundary.reads) > 1
    return "" if asked else "the boundary has no loss that weighs ratios of log-probs by advantages"


def _vary(case: Case, variant: int) -> Case | None:
    held = with_batch(case, row_constant(case.batch))
    return with_draw(held, variant=variant) if bool(case.batch.live.any()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch = case.batch
    low = with_columns(batch, logprob=batch.logprob.clamp(max=_HIGHEST))
    first = first_step(ask.boundary, with_batch(case, low))
    size = float(batch.advantage[batch.mask].abs().max())
    for row in torch.nonzero(batch.live).flatten().tolist()[:_ROWS]:
        of_row = torch.zeros_like(batch.mask).index_fill(0, torch.tensor(row, device=batch.device), value=True)
        moves = [moved(first.batch, "logprob", batch.mask & of_row, amount) for amount in (STEP, -STEP)]
        sides = [with_batch(first, move) for move in moves]
        for side, ratio in zip(sides, _RATIOS, strict=True):
            yield from _unclipped(ask, replace(side, override=case.override), ratio, row)
        here, above, below = (ask(c).values["loss"] for c in (first, *sides))
        yield from _smooth(here, above, below, row, size)


def _unclipped(ask: Ask, case: Case, ratio: str, row: int) -> Iterator[Expectation]:
    """Expect that every clip fraction is 0."""
    names = [n for n, o in ask.boundary.outputs.items() if kind(o.quantity) == "clip_fraction"]
    values = ask(case).values if names else {}
    for name in names:
        where = places(ask.boundary.outputs[name], case.batch, case.batch.live)
        value = values[name].float()
        reason = f"no ratio is near a bound: those of row {row} are {ratio}, all others 1"
        yield Equal(name, torch.zeros_like(value), value, where, 1.0, reason=reason)


def _smooth(here: Tensor, above: Tensor, below: Tensor, row: int, size: float) -> Iterator[Expectation]:
    """Expect equal slopes of the loss on both sides of a ratio of 1; ``size`` is the largest advantage."""
    gained, lost = (float((a.double() - b.double()).sum()) for a, b in ((above, here), (here, below)))
    largest, size = max(abs(gained), abs(lost)), max(size, float(here.abs().max()))
    if largest <= _ROUNDINGS * torch.finfo(here.dtype).eps * size:
        return
    says = (
        f"the clip range ends at a ratio of 1: the loss moves by {gained:.3g} if the ratios of row {row} rise to "
        f"{_RATIOS[0]}, and by {-lost:.3g} if they fall to {_RATIOS[1]}"
    )
    yield Equal("loss", 2 * here - above, below, tolerance=_SHARE * largest, says=says)


LAW = Law(
    code="ONP002",
    name="clip-range-ends-at-old-policy",
    stages=frozenset({"policy-loss"}),
    claims=("on_policy_gradient", "ratio"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    level=lambda _case: "contested",
    intended="The range may be meant to allow steps in one direction only.",
)
