"""Log-probs and entropy from hidden states in blocks: no ``[.., V]`` tensor, except for second derivatives."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_sentinel.signal.kernels import sizes
from rl_sentinel.signal.kernels.softmax import NOTHING, Formula

#: Start of the running maximum: below every logit, and finite, so that differences to it are finite too.
_BELOW = -1e30


class Columns(NamedTuple):
    """The rows of a call: hidden states ``[N, D]``, the head's weight ``[V, D]``, tokens ``[N]``, a temperature."""

    hidden: Tensor
    weight: Tensor
    token: Tensor
    temperature: float

    @property
    def wide(self) -> torch.dtype:
        """Float32 or wider, in which sums are taken."""
        return torch.promote_types(self.hidden.dtype, torch.float32)

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Blocks of the vocabulary, and in each the blocks of rows."""
        most = sizes.LOGITS_CPU if self.hidden.device.type == "cpu" else sizes.LOGITS_DEVICE
        rows = max(1, min(len(self.token), sizes.PROJECTED_ROWS))
        width = max(1, most // rows)
        for first in range(0, len(self.weight), width):
            for row in range(0, len(self.token), rows):
                yield slice(first, first + width), slice(row, row + rows)

    def logits(self, words: slice, rows: slice) -> Tensor:
        """A new tensor with one block of logits, divided by the temperature."""
        return (self.hidden[rows] @ self.weight[words].t()).to(self.wide).div_(self.temperature)

    def own(self, words: slice, rows: slice) -> tuple[Tensor, Tensor]:
        """Whether each row's token lies in a block of the vocabulary, and its index in the block as ``[n, 1]``.

        The index of a token outside of the block is clamped to the block.
        """
        place = self.token[rows] - words.start
        size = min(words.stop, len(self.weight)) - words.start
        return (place >= 0) & (place < size), place.clamp(0, size - 1).unsqueeze(1)


def from_hidden(columns: Columns, formula: Formula, *, entropy: bool) -> tuple[Tensor, Tensor]:
    """Log-probs ``[N]`` of the tokens, and entropies ``[N]``, in nats; without ``entropy`` these have no meaning.

    Gradients go to hidden states and weight.

    ``formula`` computes both from logits by plain operations; it is used for second derivatives.
    """
    logprob, spread = _FromHidden.apply(*columns, formula, entropy)  # type: ignore[no-untyped-call]  # torch has no types here
    return logprob, spread


@torch.no_grad()
def squares(columns: Columns) -> Tensor:
    """The sum of squared probabilities of each row, ``[N]``; without a gradient."""
    peak, total, square = (_filled(columns, start) for start in (_BELOW, 0.0, 0.0))
    for words, rows in columns.blocks():
        share, drop = _raised(columns.logits(words, rows), peak, rows)
        share.exp_()
        total[rows] = total[rows] * drop.exp() + share.sum(1)
        square[rows] = square[rows] * (2 * drop).exp() + share.square_().sum(1)
    return square / total.square()


class _FromHidden(torch.autograd.Function):
    """One pass over the vocabulary forward; backward, logits are computed a second time."""

    @staticmethod
    def forward(  # noqa: PLR0913 - the columns and the definition
        ctx: Any,  # noqa: ANN401 - torch's context has no type
        hidden: Tensor,
        weight: Tensor,
        token: Tensor,
        temperature: float,
        formula: Formula,
        entropy: bool,  # noqa: FBT001 - autograd passes by position
    ) -> tuple[Tensor, Tensor]:
        columns = Columns(hidden, weight, token, temperature)
        peak, total, chosen, bend = (_filled(columns, start) for start in (_BELOW, 0.0, 0.0, 0.0))
        for words, rows in columns.blocks():
            logits, (here, place) = columns.logits(words, rows), columns.own(words, rows)
            chosen[rows] = torch.where(here, logits.gather(1, place).squeeze(1), chosen[rows])
            below, drop = _raised(logits, peak, rows)
            # `bend` is the sum of (logit - peak) * exp(logit - peak); `drop` is added if the peak rises.
            bend[rows] = (bend[rows] + drop * total[rows]) * drop.exp()
            share = below.exp()
            total[rows] = total[rows] * drop.exp() + share.sum(1)
            if entropy:
                bend[rows] += share.mul_(below.clamp_(min=NOTHING)).sum(1)
        whole, spread = peak + total.log(), total.log() - bend / total
        if not entropy:
            ctx.mark_non_differentiable(spread)
        ctx.save_for_backward(hidden, weight, token, whole, spread)
        ctx.temperature, ctx.formula = temperature, formula
        return chosen - whole, spread

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        hidden, weight, token, whole, spread = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            everywhere = torch.ones_like(token, dtype=torch.bool)
            both = ctx.formula(hidden @ weight.t(), token, everywhere, ctx.temperature)
            needed = [x for x, need in zip((hidden, weight), ctx.needs_input_grad, strict=False) if need]
            slopes = iter(torch.autograd.grad(both, needed, grads, create_graph=True))
            return *(next(slopes) if need else None for need in ctx.needs_input_grad[:2]), *([None] * 4)
        columns = Columns(hidden, weight, token, ctx.temperature)
        of_logprob, of_entropy = (g / ctx.temperature for g in grads)
        flat = bool((of_entropy == 0).all())
        needed = ctx.needs_input_grad
        to_hidden = torch.zeros_like(hidden, dtype=columns.wide) if needed[0] else None
        to_weight = torch.zeros_like(weight, dtype=columns.wide) if needed[1] else None
        for words, rows in columns.blocks():
            below = columns.logits(words, rows).sub_(whole[rows].unsqueeze(1))
            chosen, (here, place) = of_logprob[rows].unsqueeze(1), columns.own(words, rows)
            if flat:
                slope = below.exp_().mul_(-chosen)
            else:
                share = below.exp()
                bend = below.clamp_(min=NOTHING).add_(spread[rows].unsqueeze(1)).mul_(of_entropy[rows].unsqueeze(1))
                slope = share.mul_(bend.add_(chosen).neg_())
            slope = slope.scatter_add_(1, place, chosen * here.unsqueeze(1)).to(hidden.dtype)
            if to_hidden is not None:
                _add_product_(to_hidden[rows], slope, weight[words])
            if to_weight is not None:
                _add_product_(to_weight[words], slope.t(), hidden[rows])
        found = (None if g is None else g.to(hidden.dtype) for g in (to_hidden, to_weight))
        return *found, *([None] * 4)


def _filled(columns: Columns, start: float) -> Tensor:
    return torch.full((len(columns.token),), start, dtype=columns.wide, device=columns.hidden.device)


def _raised(logits: Tensor, peak: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """Subtract the running maximum from a block of logits in place; also return the old maximum minus the new one."""
    raised = torch.maximum(peak[rows], logits.amax(1))
    drop = peak[rows] - raised
    peak[rows] = raised
    return logits.sub_(raised.unsqueeze(1)), drop


def _add_product_(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a matrix product to ``total`` in place, which may be of a wider dtype."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)
