"""Prompts that are the same are read once: what stands behind them goes on from copies of their keys and values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.train.model.policy import Policy


class Prefix(NamedTuple):
    """Prompts that were read: logits of what follows each, the cache, and which of its keys are tokens.

    ``real`` is None where prompts are of one length, so that nothing is padded.
    """

    logits: Float[Tensor, "B 1 V"]
    memory: Any
    real: Bool[Tensor, "B P"] | None

    def kept(self, rows: Int[Tensor, " n"]) -> "Prefix":
        """These rows alone, which go on."""
        self.memory.keep(rows)
        return Prefix(self.logits[rows], self.memory, None if self.real is None else self.real[rows])

    def followed(self, width: int) -> Bool[Tensor, "B K"] | None:
        """Which keys are tokens once ``width`` tokens follow each prompt."""
        if self.real is None:
            return None
        return torch.cat((self.real, self.real.new_ones(len(self.real), width)), dim=1)


def prefix(policy: Policy, prompts: Sequence[tuple[int, ...]], *, width: int) -> Prefix:
    """Read prompts, each of those that are the same once; the gradient is the policy's.

    Args:
        policy: who reads.
        prompts: token ids, a row each; any lengths.
        width: the most tokens that will follow.
    """
    place = {prompt: n for n, prompt in enumerate(dict.fromkeys(prompts))}
    longest, shortest = max(len(p) for p in place), min(len(p) for p in place)
    token = torch.tensor([[policy.padding] * (longest - len(p)) + list(p) for p in place], device=policy.device)
    size = torch.tensor([len(p) for p in place], device=policy.device).unsqueeze(1)
    real = None if longest == shortest else torch.arange(longest, device=policy.device) >= longest - size
    memory = policy.memory(longest + width)
    logits = policy(token, real=real, cache=memory, last=True)
    rows = torch.tensor([place[p] for p in prompts], device=policy.device)
    return Prefix(logits, memory, real).kept(rows)
