"""The inputs of one benchmark: the same numbers for everybody, from a fixed seed."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

#: Responses per prompt.
GROUP = 8


@dataclass(frozen=True, slots=True)
class Inputs:
    """Sampled responses of ``rows`` x ``width`` tokens; ``fill`` is the mean share of a row that is trained."""

    rows: int
    width: int
    fill: float
    mask: Tensor = field(init=False)
    logprob: Tensor = field(init=False)
    old_logprob: Tensor = field(init=False)
    rollout_logprob: Tensor = field(init=False)
    advantage: Tensor = field(init=False)
    value: Tensor = field(init=False)
    reward: Tensor = field(init=False)
    token_reward: Tensor = field(init=False)
    group: Tensor = field(init=False)
    floats: Tensor = field(init=False)
    wide: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Draw everything; the reward of a response lies on its last token."""
        b, t = self.rows, self.width
        draw = torch.Generator().manual_seed(0)
        spread = min(self.fill, 1 - self.fill)
        share = self.fill + spread * (2 * torch.rand(b, generator=draw) - 1)
        length = (share * t).round().clamp(1, t).long()
        old = -3 * torch.rand(b, t, generator=draw)
        new = old + 0.2 * torch.randn(b, t, generator=draw)
        reward = torch.randint(0, 5, (b,), generator=draw).float()
        put = {
            "mask": torch.arange(t) < length.unsqueeze(1),
            "old_logprob": old,
            "logprob": new.clamp(max=0),
            "rollout_logprob": (old + 0.02 * torch.randn(b, t, generator=draw)).clamp(max=0),
            "advantage": torch.randn(b, generator=draw),
            "value": torch.randn(b, t, generator=draw),
            "reward": reward,
            "token_reward": torch.zeros(b, t).scatter(1, (length - 1).unsqueeze(1), reward.unsqueeze(1)),
            "group": torch.arange(b) // GROUP,
        }
        put["floats"] = put["mask"].float()  # a peer's mask, and the advantage at each trained token: not timed
        put["wide"] = put["advantage"].unsqueeze(1) * put["mask"]
        for name, tensor in put.items():
            object.__setattr__(self, name, tensor)

    @property
    def tokens(self) -> int:
        """How many train."""
        return int(self.mask.sum())

    @property
    def uid(self) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
        """The group's label as text, as peers carry it."""
        return np.array([f"prompt-{g}" for g in self.group.tolist()], dtype=object)


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    """The gradient of a loss to what it was made of."""
    found: Tensor = torch.autograd.grad(loss, leaf)[0]
    return found
