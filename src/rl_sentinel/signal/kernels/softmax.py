"""Log-probs and entropy from logits in blocks of rows: no second ``[.., V]`` tensor in the forward pass."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.signal.kernels import sizes

#: A log-prob in nats, whose probability is 0 in float64 too; it replaces minus infinity, so that 0 times it is 0.
NOTHING = -1000.0


#: Computes log-probs and entropies from logits, tokens, mask and temperature.
Formula = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


def from_logits(  # noqa: PLR0913 - the columns, two choices and the definition
    logits: Tensor, token: Tensor, mask: Tensor, temperature: float, *, entropy: bool, formula: Formula
) -> tuple[Tensor, Tensor]:
    """Log-probs of tokens ``[N]`` under logits ``[N, V]``, and entropies, or 0 without ``entropy``.

    Both are 0 where ``mask`` is False.

    ``formula`` computes the same by plain operations; it is used for second derivatives.
    """
    logprob, spread = _FromLogits.apply(logits, token, mask, temperature, entropy, formula)  # type: ignore[no-untyped-call]  # torch has no types here
    return logprob, spread


class _FromLogits(torch.autograd.Function):
    """Blocks of rows; the backward pass needs two numbers per row besides the logits."""

    @staticmethod
    def forward(  # noqa: PLR0913 - the flat columns and two choices
        ctx: Any,  # noqa: ANN401 - torch's context has no type
        logits: Tensor,
        token: Tensor,
        mask: Tensor,
        temperature: float,
        entropy: bool,  # noqa: FBT001 - autograd passes by position
        formula: Formula,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(logits.dtype, torch.float32)
        logprob, spread, total = (torch.zeros(len(token), dtype=wide, device=logits.device) for _ in range(3))
        for rows in _blocks(logits, mask):
            scaled = _scaled(logits, rows, temperature)
            whole = torch.logsumexp(scaled, dim=1)
            total[rows] = whole
            logprob[rows] = scaled.gather(1, token[rows].unsqueeze(1)).squeeze(1) - whole
            if entropy:
                spread[rows] = _entropy(scaled.sub_(whole.unsqueeze(1)))
        ctx.save_for_backward(logits, token, mask, total, spread)
        ctx.temperature, ctx.formula = temperature, formula
        return logprob, spread

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None, None]:  # noqa: ANN401 - as above
        logits, token, mask, total, spread = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            both = ctx.formula(logits, token, mask, ctx.temperature)
            return torch.autograd.grad(both, logits, grads, create_graph=True)[0], None, None, None, None, None
        of_logprob, of_entropy = (g / ctx.temperature for g in grads)
        flat, found = bool((of_entropy == 0).all()), torch.zeros_like(logits)
        for rows in _blocks(logits, mask):
            own = _scaled(logits, rows, ctx.temperature).sub_(total[rows].unsqueeze(1))
            share, chosen = own.exp(), of_logprob[rows].unsqueeze(1)
            if flat:
                share.mul_(-chosen)
            else:
                bend = own.clamp_(min=NOTHING).add_(spread[rows].unsqueeze(1)).mul_(of_entropy[rows].unsqueeze(1))
                share.mul_(bend.add_(chosen).neg_())
            found[rows] = share.scatter_add_(1, token[rows].unsqueeze(1), chosen).to(found.dtype)
        return found, None, None, None, None, None


def _entropy(own: Tensor) -> Tensor:
    """Entropy of each row from its log-probs, which are overwritten; a log-prob of minus infinity adds 0."""
    return -own.exp().mul_(own.clamp_(min=NOTHING)).sum(dim=1)


def _scaled(logits: Tensor, rows: slice | Tensor, temperature: float) -> Tensor:
    """Copy one block of logits in float32 or wider, divided by the temperature."""
    return torch.div(logits[rows].to(torch.promote_types(logits.dtype, torch.float32)), temperature)


def _blocks(logits: Tensor, mask: Tensor) -> Iterator[slice | Tensor]:
    """Blocks of the selected rows; slices if all rows are selected."""
    size = max(1, (sizes.LOGITS_CPU if logits.device.type == "cpu" else sizes.LOGITS_DEVICE) // logits.shape[1])
    if bool(mask.all()):
        yield from (slice(start, start + size) for start in range(0, len(mask), size))
    else:
        yield from torch.split(torch.nonzero(mask).squeeze(1), size)
