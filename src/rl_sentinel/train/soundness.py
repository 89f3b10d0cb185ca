"""Optimizer steps that leave numbers: one that does not is taken back, and told."""

from collections.abc import Iterable

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.ranks import ALONE, Ranks


class RuinedError(SentinelError):
    """Weights, or the moments of their optimizer, that a step has made no numbers; both are as before it again."""


@torch.no_grad()
def stepped(optimizer: torch.optim.Optimizer, *, key: str, ranks: Ranks = ALONE) -> None:
    """Take an optimizer's step, and take it back where its weights or moments are not finite, on whichever rank.

    A norm that is too large for a float32 is not finite either: no model computes with such weights.

    Args:
        optimizer: with its gradients in place.
        key: the recipe's key of its rate.
        ranks: who holds a part of the weights.

    Raises:
        RuinedError: if a norm is not finite.

    Example:
        >>> import torch
        >>> from rl_sentinel.train.soundness import stepped
        >>> weight = torch.ones(2, requires_grad=True)
        >>> weight.grad = torch.ones(2)
        >>> stepped(torch.optim.AdamW([weight], lr=1e30), key="update.rate")
        Traceback (most recent call last):
        rl_sentinel.train.soundness.RuinedError: norm of the weights after the step is inf, ...
        >>> weight.tolist()
        [1.0, 1.0]
    """
    weights = [w for group in optimizer.param_groups for w in group["params"]]
    before = [w.clone() for w in weights]
    moments = {w: {n: _copy(x) for n, x in known.items()} for w, known in optimizer.state.items()}
    optimizer.step()
    held = [x for known in optimizer.state.values() for x in known.values() if isinstance(x, Tensor) and x.dim()]
    norms = ranks.added(torch.stack((_norm(weights), _norm(held))))
    if norms.isfinite().all():
        return
    for weight, copy in zip(weights, before, strict=True):
        weight.copy_(copy)
    optimizer.state.clear()
    optimizer.state.update(moments)
    what = "weights" if not norms[0].isfinite() else "optimizer's moments"
    found, rate = float(norms[:2][~norms.isfinite()][0]), optimizer.param_groups[0]["lr"]
    raise RuinedError(
        f"norm of the {what} after the step is {found}, expected a finite number: {key} was {rate:g}, take a lower one"
    )


def _norm(tensors: Iterable[Tensor]) -> Tensor:
    """Of this rank's part of them."""
    own = [getattr(x, "to_local", lambda x=x: x)().detach() for x in tensors]
    return torch.stack([x.float() for x in torch._foreach_norm(own)]).norm() if own else torch.zeros(())  # noqa: SLF001 - fused


def _copy(value: object) -> object:
    return value.clone() if isinstance(value, Tensor) else value
