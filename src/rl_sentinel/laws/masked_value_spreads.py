"""MSK004 masked-value-spreads: a fill value at masked positions spreads into the results.

What it says:
    Frameworks fill masked slots with log-probs of -1e4. With this fill in the log-probs of every policy at every
    untrained position, outputs and gradients at trained tokens stay finite and unchanged. If a boundary claims that a
    masked slot may hold anything, NaN and infinity are tried too, in every signal that it reads, and must not be
    refused. An output that is claimed to be 0 off the mask is still 0 there.

Why it matters:
    Masked slots hold arbitrary values of the model or the padding. Code that applies the mask only after an exponential
    or a sum lets one such number spoil a whole row.

A boundary that breaks it:
    >>> import torch
    >>> logprob, mask = torch.tensor([[-1.0, -1e4]]), torch.tensor([[True, False]])
    >>> (logprob.sum(1, keepdim=True) * mask).tolist()
    [[-10001.0, -0.0]]
    >>> torch.where(mask, logprob, 0.0).sum(1).tolist()
    [-1.0]

How to fix it:
    Replace masked entries with ``torch.where`` before ``exp``, ``sum`` or a product: NaN times 0 is NaN.
    ``rl_sentinel.signal.reduce.selected`` does it, and its gradient is 0 there.

Where it does not apply:
    Boundaries that read no mask, or no log-probs and make no such claim (``masked-slots: any``), or compute log-probs
    from logits or with a model, whose output at an untrained position differs. All policies carry the fill together,
    since no framework makes a batch with the fill in only one of them.

Seen in:
    See the audit's reports.
"""

import math
from collections.abc import Iterator

import torch

from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.errors import Refused
from rl_sentinel.core.expectations import Attempt, Change, Equal, Expectation, Refuses
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.core.phrasing import number
from rl_sentinel.search.comparison import cells, magnitude, over_all, same_tokens, slopes
from rl_sentinel.search.preconditions import without_influence
from rl_sentinel.search.transforms import replaced

#: Value of masked slots, one per variant: first the log-prob that means "impossible", in nats.
FILLS = (-1e4, math.nan, math.inf, -math.inf)

COLUMNS_FILLED = frozenset({"logprob", "old_logprob", "ref_logprob", "rollout_logprob"})


def _applies(boundary: Boundary) -> str:
    if "mask" not in boundary.reads:
        return "the boundary reads no mask"
    if "logits" in boundary.reads:
        return "the boundary computes its log-probs from logits"
    if "logprob" in boundary.modeled:
        return "a model computes its log-probs"
    if value_of(boundary.claims.masked_slots) == "any":
        return ""
    return "" if boundary.reads & COLUMNS_FILLED else "the boundary reads no log-probs"


def _vary(case: Case, variant: int) -> Case | None:
    batch = case.batch
    split = bool(batch.mask.any()) and not bool(batch.mask.all())
    return with_draw(case, variant=variant) if split else None


def _filled(boundary: Boundary, batch: Batch, fill: float) -> Batch:
    anything = not math.isfinite(fill)
    for column in sorted(boundary.reads if anything else boundary.reads & COLUMNS_FILLED):
        about = COLUMNS[column]
        if about["role"] == "signal" and about["axes"].startswith("B"):
            wide = about["axes"].startswith("B T")
            where = ~batch.mask if wide else without_influence(boundary, batch, batch.live)
            batch = replaced(batch, column, where, fill)
    return batch


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, batch, fill = ask.boundary, case.batch, FILLS[int(case.draw["variant"] or 0)]
    claimed = value_of(boundary.claims.masked_slots) == "any"
    if not math.isfinite(fill) and not claimed:
        return
    other = _filled(boundary, batch, fill)
    if other is batch:
        return
    before = ask(case, gradients=slopes(boundary))
    places = "positions and rows" if claimed else "positions"
    reason = f"untrained {places} must have no influence"
    change = Change(f"{number(fill)} in {'every signal' if claimed else 'the log-probs'} there")
    try:
        after = ask(with_batch(case, other), gradients=slopes(boundary))
    except Refused as refusal:
        if not claimed:
            raise
        why = "masked positions may contain anything"
        attempt = Attempt(f"{number(fill)} at untrained positions", why, str(refusal))
        yield Refuses("refusal", (attempt,), accepts=True)
        return
    scale = magnitude(batch, boundary.reads)
    skip = over_all(boundary)
    yield from same_tokens(boundary, batch, before, after, change=change, reason=reason, scale=scale, skip=skip)
    for name in boundary.outputs if claimed and boundary.claims.masked else ():
        if boundary.outputs[name].axes == "B T":
            value = after.values[name]
            why = f"{name} is claimed to be 0 where nothing is trained"
            yield Equal(name, torch.zeros_like(value), value, ~batch.mask, reason=why, key=f"{name} off the mask")
    for column, gradient in after.gradients.items() if claimed else ():
        name, off = f"gradient of {column}", ~cells(batch.mask, gradient)
        why = f"{number(fill)} in a masked position must have no gradient"
        zero = torch.zeros_like(gradient)
        yield Equal(name, zero, gradient, off, tolerance=0.0, reason=why, key=f"{name} off the mask")


LAW = Law(
    code="MSK004",
    name="masked-value-spreads",
    stages=frozenset({"kl", "correct", "advantage", "policy-loss", "value-loss", "aggregate"}),
    claims=("masked", "masked_slots", "trajectories"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(FILLS),
    shows_with="MSK002",
)
