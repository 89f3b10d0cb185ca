"""Prefill of prompts: equal prompts go through the model once, and their rows continue from copies of its KV cache."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.train.model.device import CPU, send
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.readout import Readout, logits, unchanged


class Prefilled(NamedTuple):
    """Prompts after the prefill: the result at their last positions, the KV cache, and which of its keys are tokens.

    ``last`` are logits of the next token, or another function of the hidden states. ``key_mask`` is None if all prompts
    have one length, so that there is no padding.
    """

    last: Float[Tensor, "B 1 V"]
    cache: Any
    key_mask: Bool[Tensor, "B P"] | None

    def select(self, rows: Int[Tensor, " n"]) -> "Prefilled":
        """Keep only these rows; the cache is changed in place."""
        self.cache.select(rows)
        return Prefilled(self.last[rows], self.cache, None if self.key_mask is None else self.key_mask[rows])

    def extended_mask(self, width: int) -> Bool[Tensor, "B K"] | None:
        """The key mask after ``width`` more tokens per row."""
        if self.key_mask is None:
            return None
        return torch.cat((self.key_mask, self.key_mask.new_ones(len(self.key_mask), width)), dim=1)


def prefill(policy: Policy, prompts: Sequence[tuple[int, ...]], *, width: int, of: Readout = logits) -> Prefilled:
    """Run prompts through the policy, each distinct prompt once; the result has a row per prompt and is differentiable.

    Args:
        policy: the policy.
        prompts: token ids per row, of any lengths.
        width: the most tokens that follow.
        of: the function to compute at the last positions.
    """
    prefilled, rows = prefill_distinct(policy, prompts, width=width, of=of)
    return prefilled.select(rows)


def prefill_distinct(
    policy: Policy, prompts: Sequence[tuple[int, ...]], *, width: int, of: Readout = logits
) -> tuple[Prefilled, Int[Tensor, " B"]]:
    """Like :func:`prefill`, with a row per distinct prompt, and for each prompt the index of its row."""
    place = {prompt: n for n, prompt in enumerate(dict.fromkeys(prompts))}
    longest, shortest = max(len(p) for p in place), min(len(p) for p in place)
    token = torch.tensor([[policy.padding] * (longest - len(p)) + list(p) for p in place], device=CPU)
    size = torch.tensor([len(p) for p in place], device=CPU).unsqueeze(1)
    key_mask = None
    if longest != shortest:
        key_mask = send(torch.arange(longest, device=CPU) >= longest - size, policy.device)
    cache = policy.new_cache(longest + width)
    last = policy(send(token, policy.device), key_mask=key_mask, cache=cache, last=True, of=of)
    rows = torch.tensor([place[p] for p in prompts], device=CPU)
    return Prefilled(last, cache, key_mask), send(rows, policy.device)


def response_states(
    policy: Policy, prompts: Sequence[tuple[int, ...]], response: Int[Tensor, "B T"]
) -> Float[Tensor, "B T D"]:
    """Hidden states that predict the tokens of responses, after a prefill of the distinct prompts; differentiable.

    ``response`` is on the policy's device.
    """
    prefilled, width = prefill(policy, prompts, width=response.shape[1], of=unchanged), response.shape[1] - 1
    if width == 0:
        return prefilled.last
    rest = policy(response[:, :width], key_mask=prefilled.extended_mask(width), cache=prefilled.cache, of=unchanged)
    return torch.cat((prefilled.last, rest), dim=1)
