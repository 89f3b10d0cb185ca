"""Optimizer steps that leave numbers: one that does not is taken back, and told."""

from collections.abc import Iterable

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.distributed import ALONE, Ranks

#: The most bytes of weights and moments that are copied for a step's length, in bytes; larger ones are not taken back.
COPIED = 2**30


class RuinedError(SentinelError):
    """Weights, or the moments of their optimizer, that a step has made no numbers; both are as before it again."""


@torch.no_grad()
def stepped(optimizer: torch.optim.Optimizer, *, key: str, ranks: Ranks = ALONE) -> None:
    """Take an optimizer's step, and take it back where its weights or moments are not finite, on whichever rank.

    A norm that is too large for a float32 is not finite either: no model computes with such weights. Of more than
    ``COPIED`` bytes no copy is made, which would be as much memory as training itself: such a step stays taken.

    Args:
        optimizer: with its gradients in place.
        key: the recipe's key of its rate.
        ranks: who holds a part of the weights.

    Raises:
        RuinedError: if a norm is not finite.
        SentinelError: if one is not, of what was too large to be copied.

    Example:
        >>> import torch
        >>> from rl_sentinel.train.update.optimizer_step import RuinedError, stepped
        >>> weight = torch.ones(2, requires_grad=True)
        >>> weight.grad = torch.ones(2)
        >>> try:
        ...     stepped(torch.optim.AdamW([weight], lr=1e30), key="update.rate")
        ... except RuinedError as error:
        ...     print(str(error).partition(",")[0])
        norm of the weights after the step is inf
        >>> weight.tolist()
        [1.0, 1.0]
    """
    weights = [w for group in optimizer.param_groups for w in group["params"]]
    known = set(optimizer.state)
    tensors = _own([*weights, *_moments(optimizer)])
    copied = sum(x.numel() * x.element_size() for x in tensors) <= COPIED
    before = torch.cat([x.reshape(-1) for x in tensors]) if copied else None  # a copy of each takes longer
    optimizer.step()
    held = [x for x in _moments(optimizer) if x.dim()]  # and not how many steps there were
    norms = ranks.added(torch.stack((_norm(_own(weights)), _norm(_own(held)))))
    if norms.isfinite().all():
        return
    what = "weights" if not norms[0].isfinite() else "optimizer's moments"
    found, rate = float(norms[:2][~norms.isfinite()][0]), optimizer.param_groups[0]["lr"]
    words = (
        f"norm of the {what} after the step is {found}, expected a finite number: {key} was {rate:g}, take a lower one"
    )
    if before is None:
        raise SentinelError(f"{words}, and go on from the last checkpoint (weights are too many to be taken back)")
    for tensor, part in zip(tensors, torch.split(before, [x.numel() for x in tensors]), strict=True):
        tensor.copy_(part.reshape(tensor.shape))
    for weight in set(optimizer.state) - known:
        del optimizer.state[weight]
    raise RuinedError(words)


def _moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All tensors that it keeps from step to step."""
    return [x for known in optimizer.state.values() for x in known.values() if isinstance(x, Tensor)]


def _own(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This rank's parts, which share their memory."""
    return [x.to_local() if hasattr(x, "to_local") else x for x in tensors]


def _norm(tensors: list[Tensor]) -> Tensor:
    return torch.stack(torch._foreach_norm(tensors)).norm() if tensors else torch.zeros(())  # noqa: SLF001 - fused
