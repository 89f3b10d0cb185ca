"""The optimizer, and optimizer steps that are rolled back if they leave weights or moments that are not finite."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.settings import UpdateSettings
from rl_sentinel.train.model.device import CPU
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.distributed import ALONE, Ranks

#: Weights and moments of at most this many bytes are copied before a step, so that it can be rolled back.
MAX_BACKUP_BYTES = 2**30

#: Devices on which AdamW has a fused kernel.
FUSED = ("cpu", "cuda")


class NonFiniteStepError(SentinelError):
    """A loss, gradient, weight or moment of an optimizer step is not finite; weights and moments are as before."""


def build_optimizer(policy: Policy, settings: UpdateSettings) -> torch.optim.Optimizer:
    """Build the optimizer of a policy."""
    weights = [weight for weight in policy.model.parameters() if weight.requires_grad]
    fused = policy.device.type in FUSED  # one pass over the weights instead of ten
    return torch.optim.AdamW(weights, lr=settings.rate, betas=settings.betas, weight_decay=settings.decay, fused=fused)


@torch.no_grad()
def take_optimizer_step(optimizer: torch.optim.Optimizer, *, key: str, ranks: Ranks = ALONE) -> None:
    """Take an optimizer step, and roll it back if a weight or moment is not finite on any rank.

    A norm that overflows float32 counts as not finite, since no model computes with such weights. Above
    ``MAX_BACKUP_BYTES`` no copy is made, since it would double the memory of training; such a step is not rolled back.

    Args:
        optimizer: the optimizer, with gradients in place.
        key: the recipe's key of its learning rate, for messages.
        ranks: the ranks that hold parts of the weights.

    Raises:
        NonFiniteStepError: if a norm is not finite.
        SentinelError: if a norm is not finite and the step cannot be rolled back.
    """
    weights = [w for group in optimizer.param_groups for w in group["params"]]
    initialized = set(optimizer.state)
    tensors = _local([*weights, *_moments(optimizer)])
    backed_up = sum(x.numel() * x.element_size() for x in tensors) <= MAX_BACKUP_BYTES
    backup = back_up(tensors) if backed_up else None
    optimizer.step()
    moments = [x for x in _moments(optimizer) if x.dim()]  # without the step counts
    norms = ranks.all_reduce(torch.stack([_norm(_local(x)) for x in (weights, moments)]).to(CPU))
    if norms.isfinite().all():
        return
    kind = "weights" if not norms[0].isfinite() else "optimizer's moments"
    norm, rate = float(norms[~norms.isfinite()][0]), optimizer.param_groups[0]["lr"]
    message = (
        f"norm of the {kind} after the optimizer step is {norm}, expected a finite number: lower {key}, it was {rate:g}"
    )
    if backup is None:
        raise SentinelError(
            f"{message}; start a new run with out=DIR, since a run cannot resume with another {key} (the step was not "
            "rolled back: the weights are too large to copy)"
        )
    for originals, copies in backup:
        for tensor, part in zip(originals, torch.split(copies, [x.numel() for x in originals]), strict=True):
            tensor.copy_(part.reshape(tensor.shape))
    for weight in set(optimizer.state) - initialized:
        del optimizer.state[weight]
    raise NonFiniteStepError(message)


def back_up(tensors: Sequence[Tensor]) -> list[tuple[list[Tensor], Tensor]]:
    """For each device, its tensors and one copy of all their numbers, which is faster than a clone of each tensor.

    AdamW counts its steps on the CPU, also for weights on a GPU.
    """
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        by_device.setdefault(tensor.device, []).append(tensor)
    return [(group, torch.cat([x.reshape(-1) for x in group])) for group in by_device.values()]


def _moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All tensors of the optimizer's state."""
    return [x for state in optimizer.state.values() for x in state.values() if isinstance(x, Tensor)]


def _local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This rank's shards; they share memory with the tensors."""
    return [x.to_local() if hasattr(x, "to_local") else x for x in tensors]


def _norm(tensors: list[Tensor]) -> Tensor:
    if not tensors:  # plain gradient descent has no moments
        return torch.zeros((), device=CPU)
    norm: Tensor = torch.stack(torch._foreach_norm(tensors)).norm()  # noqa: SLF001 - fused
    return norm
