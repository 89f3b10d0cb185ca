"""MSK004 masked-value-spreads.

What it says:
    The fill that a framework itself puts into masked slots, log-probs of -1e4 of every policy at
    every untrained position, leaves outputs and gradients at trained tokens finite and unchanged.

Why it matters:
    Masked slots hold whatever the model or the padding left there. What multiplies by the mask
    after it has exponentiated or summed lets one such number drown a whole row.

A boundary that breaks it:
    >>> import torch
    >>> logprob, mask = torch.tensor([[-1.0, -1e4]]), torch.tensor([[True, False]])
    >>> (logprob.sum(1, keepdim=True) * mask).tolist()
    [[-10001.0, -0.0]]
    >>> torch.where(mask, logprob, 0.0).sum(1).tolist()
    [-1.0]

Where it does not apply:
    Boundaries that read no mask or no log-probs, or make log-probs from logits. All policies carry
    the fill together, since a fill in one of them alone is no batch that a framework makes.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.cases.comparison import magnitude, over_all, same_tokens, slopes
from rl_sentinel.cases.transforms import replaced
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation

#: Log-prob that stands for "impossible" in masked slots, in nats.
FILL = -1e4

COLUMNS_FILLED = frozenset({"logprob", "old_logprob", "ref_logprob", "rollout_logprob"})


def _applies(boundary: Boundary) -> str:
    if "mask" not in boundary.reads:
        return "it reads no mask"
    if "logits" in boundary.reads:
        return "it makes its log-probs from logits"
    return "" if boundary.reads & COLUMNS_FILLED else "it reads no log-probs"


def _vary(case: Case, variant: int) -> Case | None:
    batch = case.batch
    split = bool(batch.mask.any()) and not bool(batch.mask.all())
    return with_draw(case, variant=variant) if split else None


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    boundary, batch = ask.boundary, case.batch
    other = batch
    for column in sorted(boundary.reads & COLUMNS_FILLED):
        other = replaced(other, column, ~batch.mask, FILL)
    before = ask(case, gradients=slopes(boundary))
    after = ask(with_batch(case, other), gradients=slopes(boundary))
    story = f"the log-probs at untrained positions, padding too, set to {FILL:g}"
    scale = magnitude(batch, boundary.reads)
    yield from same_tokens(boundary, batch, before, after, story=story, scale=scale, skip=over_all(boundary))


LAW = Law(
    code="MSK004",
    name="masked-value-spreads",
    stages=frozenset({"kl", "correct", "advantage", "policy-loss", "aggregate"}),
    applies=_applies,
    vary=_vary,
    relate=_relate,
    shows_with="MSK002",
)
