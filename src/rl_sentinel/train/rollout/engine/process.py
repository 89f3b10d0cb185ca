"""Sample in this process: batched decoding with a KV cache, which drops rows that have ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.train.config.settings import RolloutSettings
from rl_sentinel.train.model.device import send
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import prefill
from rl_sentinel.train.rollout.interfaces import Sampled


@dataclass(slots=True)
class Engine:
    """Samples ``rows`` rows at a time; a ``shared`` policy is the one that is trained, so its weights are current."""

    remote: ClassVar[bool] = False
    policy: Policy
    temperature: float
    tokens: int
    rows: int = 256
    version: int = 0
    shared: bool = False

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Load new weights, unless they are shared."""
        if not self.shared:
            for name, weight in self.policy.model.state_dict().items():
                weight.copy_(weights[name])  # one at a time, since each may be gathered from other processes
        self.version = version

    def sample(
        self, prompts: Sequence[tuple[int, ...]], uniform: Float[Tensor, "B T"], *, greedy: bool = False
    ) -> list[Sampled]:
        """One response per prompt, as in ``interfaces.Engine``; prompts of similar length share a batch."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        sampled: dict[int, Sampled] = {}
        for start in range(0, len(order), self.rows):
            rows = order[start : start + self.rows]
            responses = self._decode(
                [prompts[i] for i in rows], uniform[torch.tensor(rows, device=uniform.device)], greedy=greedy
            )
            sampled |= dict(zip(rows, responses, strict=True))
        return [sampled[i] for i in range(len(prompts))]

    @torch.inference_mode()
    def _decode(self, prompts: Sequence[tuple[int, ...]], uniform: Tensor, *, greedy: bool) -> list[Sampled]:
        policy, device, rows = self.policy, self.policy.device, len(prompts)
        uniform, tokens = send(uniform, device), min(self.tokens, uniform.shape[1])
        prefilled = prefill(policy, prompts, width=tokens)
        logits = prefilled.last
        token = torch.full((rows, tokens), policy.padding, device=device)
        logprob = torch.zeros(rows, tokens, device=device)
        alive, active = torch.arange(rows, device=device), torch.ones(rows, dtype=torch.bool, device=device)
        for place in range(tokens):
            distribution = torch.log_softmax(logits[:, -1].float() / self.temperature, dim=1)
            new = distribution.argmax(dim=1) if greedy else _inverse_cdf(distribution, uniform[alive, place])
            token[alive, place] = torch.where(active, new, policy.padding)
            logprob[alive, place] = torch.where(active, distribution.gather(1, new.unsqueeze(1)).squeeze(1), 0.0)
            for end in policy.ends:
                active = active & (new != end)
            if place == tokens - 1:
                break
            active_count = int(active.sum())  # waits for the device, and saves the tokens after the last end
            if active_count == 0:
                break
            if active_count <= len(active) // 2:  # copying the cache pays only if it shrinks a lot
                remaining = torch.nonzero(active).squeeze(1)
                prefilled = prefilled.select(remaining)
                alive, active, new = alive[remaining], active[remaining], new[remaining]
            mask = prefilled.extended_mask(place + 1)
            logits = policy(new.unsqueeze(1), key_mask=mask, cache=prefilled.cache, last=True)
        return _split_rows(token.tolist(), logprob.tolist(), policy.ends, self.version)


def build_engine(settings: RolloutSettings, policy: Policy, *, shared: bool) -> Engine:
    """Build the engine of a recipe."""
    return Engine(policy, settings.temperature, settings.tokens, shared=shared)


def _inverse_cdf(distribution: Tensor, uniform: Tensor) -> Tensor:
    """The first token whose cumulative probability exceeds the uniform number; never a token of probability 0."""
    total = distribution.exp().double().cumsum(dim=1)
    aim = uniform.double().unsqueeze(1) * total[:, -1:]
    return torch.searchsorted(total, aim, right=True).squeeze(1).clamp(max=distribution.shape[1] - 1)


def _split_rows(
    token: list[list[int]], logprob: list[list[float]], ends: tuple[int, ...], version: int
) -> list[Sampled]:
    """Cut each row after its first end token."""
    sampled = []
    for ids, values in zip(token, logprob, strict=True):
        place = next((n for n, token in enumerate(ids) if token in ends), None)
        size = len(ids) if place is None else place + 1
        sampled.append(Sampled(tuple(ids[:size]), tuple(values[:size]), place is not None, version))
    return sampled
