"""Make a batch from a mask and a few columns; the other columns are filled with distinct simple numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_sentinel.core.batch import EXCLUDED, VOCABULARY, Batch, batch_of

#: Log-ratios in nats, on both sides of every clip threshold in use.
LOG_RATIOS = (0.0, 0.01, -0.1, 1.0, -1.0, 0.1, 3.0, -0.01)


def _grid(b: int, t: int, *, period: int, stride: int) -> Tensor:
    row, position = torch.arange(b, device="cpu").unsqueeze(1), torch.arange(t, device="cpu").unsqueeze(0)
    return ((row * stride + position * 2) % period).float()


def filled(
    mask: Sequence[Sequence[int]],
    *,
    reward: Sequence[float],
    group: Sequence[int],
    length: Sequence[int] | None = None,
    dead: str = "rejected",
    **overrides: Tensor,
) -> Batch:
    """A batch in which every signal column except ``token_reward`` is set, mostly to multiples of 0.25.

    ``dead`` is the reason why rows without a trained token are excluded. The log-probs of the policies mostly differ,
    and so do the advantages of tokens. Turns have two tokens, except the first of every other row.
    """
    m = torch.tensor(mask, dtype=torch.bool, device="cpu")
    b, t = m.shape
    lengths = torch.tensor(length if length is not None else [t] * b, device="cpu")
    logprob = -0.5 - 0.25 * _grid(b, t, period=5, stride=3)
    ratios = torch.tensor(LOG_RATIOS, device="cpu")
    old = logprob - ratios[_grid(b, t, period=8, stride=3).long()]
    columns = {
        "group": torch.tensor(group, device="cpu"),
        "length": lengths,
        "excluded": torch.where(m.any(1), 0, EXCLUDED[dead]),
        "reward": torch.tensor(reward, dtype=torch.float32, device="cpu"),
        "reward_baseline": 0.25 * (torch.arange(b, device="cpu") % 3).float(),
        "reward_parts": torch.stack(
            [torch.tensor(reward, device="cpu"), 0.5 * (torch.arange(b, device="cpu") % 3)], 1
        ).float(),
        "logprob": logprob,
        "old_logprob": old,
        "ref_logprob": logprob - 0.25 * (_grid(b, t, period=4, stride=1) - 1),
        "rollout_logprob": old - 0.25 * (_grid(b, t, period=3, stride=2) - 1),
        "value": 0.25 * _grid(b, t, period=4, stride=3),
        "old_value": 0.25 * _grid(b, t, period=3, stride=1),
        "returns": 0.5 * _grid(b, t, period=5, stride=2) - 1,
        "advantage": 0.5 * _grid(b, t, period=5, stride=3) - 0.75,
        "entropy": 0.25 + 0.25 * _grid(b, t, period=3, stride=1),
        "pi_squared": at_least(logprob) + 0.125 * _grid(b, t, period=2, stride=1),
        "version": torch.arange(b, device="cpu").unsqueeze(1) % 4 + (torch.arange(t, device="cpu") > 1),
        "turn": (torch.arange(b, device="cpu").unsqueeze(1) + torch.arange(t, device="cpu")) // 2,
        "token": (1 + _grid(b, t, period=2, stride=1)).long(),
        "logits": _logits(b, t),
        "ref_logits": _logits(b, t).flip(2) * 0.5,
    }
    return batch_of(m, **(columns | overrides))


def at_least(logprob: Tensor) -> Tensor:
    """The smallest multiple of 1/8 that a sum of squared probabilities can be, given the log of one probability."""
    return ((2 * logprob).exp() * 8).ceil() / 8


def _logits(b: int, t: int) -> Tensor:
    shape = (b, t, VOCABULARY)
    return 0.5 * (torch.arange(b * t * VOCABULARY, device="cpu") % 5).float().reshape(shape)
