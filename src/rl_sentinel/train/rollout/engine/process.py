"""Sample in this process: batched decoding with a KV cache; responses that are equal so far are decoded once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.train.config.settings import RolloutSettings
from rl_sentinel.train.model.device import send
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import Prefilled, prefill_distinct
from rl_sentinel.train.rollout.interfaces import Sampled


@dataclass(slots=True)
class Engine:
    """An engine that samples up to ``rows`` responses at a time with ``policy``.

    If ``shared``, the trained policy itself is used, so that its weights are always current.
    """

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
        prefilled, branch = prefill_distinct(policy, prompts, width=tokens)
        token = torch.full((rows, tokens), policy.padding, device=device)
        logprob = torch.zeros(rows, tokens, device=device)
        decoding = _Decoding(prefilled, torch.arange(rows, device=device), branch)
        logits = prefilled.last
        for place in range(tokens):
            distribution = torch.log_softmax(logits[:, -1].float() / self.temperature, dim=1)
            distribution = decoding.of_responses(distribution)
            new = distribution.argmax(dim=1) if greedy else _inverse_cdf(distribution, uniform[decoding.alive, place])
            chosen = distribution.gather(1, new.unsqueeze(1)).squeeze(1)
            token[decoding.alive, place] = torch.where(decoding.active, new, policy.padding)
            logprob[decoding.alive, place] = torch.where(decoding.active, chosen, 0.0)
            decoding.end(new, policy.ends)
            if place == tokens - 1:
                break
            following = decoding.advance(new)
            if following is None:
                break
            mask = decoding.prefilled.extended_mask(place + 1)
            logits = policy(following.unsqueeze(1), key_mask=mask, cache=decoding.prefilled.cache, last=True)
        return _split_rows(token.tolist(), logprob.tolist(), policy.ends, self.version)


class _Decoding:
    """The responses that are being decoded. Responses with equal prompts and tokens so far share one row of the model.

    ``alive`` are the indices of the responses; ``active`` is True for a response that has not ended. ``branch`` is the
    model's row for each response; None if each response has a separate row, in the same order.
    """

    def __init__(self, prefilled: Prefilled, alive: Tensor, branch: Tensor) -> None:
        """Start after the prefill of the distinct prompts."""
        self.prefilled, self.alive = prefilled, alive
        self.branch: Tensor | None = branch
        self.active = torch.ones_like(alive, dtype=torch.bool)

    def of_responses(self, values: Tensor) -> Tensor:
        """Convert values per row of the model to values per response."""
        return values if self.branch is None else values[self.branch]

    def end(self, new: Tensor, ends: Sequence[int]) -> None:
        """Mark responses whose new token is an end."""
        for end in ends:
            self.active = self.active & (new != end)

    def advance(self, new: Tensor) -> Tensor | None:
        """The tokens that the rows of the model read next; None if no response is left."""
        return self._advance_rows(new) if self.branch is None else self._advance_branches(new, self.branch)

    def _advance_rows(self, new: Tensor) -> Tensor | None:
        count = int(self.active.sum())  # waits for the device, and saves the tokens after the last end
        if count == 0:
            return None
        if count > len(self.active) // 2:  # copying the cache pays only if it shrinks a lot
            return new
        remaining = torch.nonzero(self.active).squeeze(1)
        self._keep(remaining, remaining)
        return new[remaining]

    def _advance_branches(self, new: Tensor, branch: Tensor) -> Tensor | None:
        """Drop responses that have ended, and split the rows whose responses differ in their new tokens."""
        active = torch.nonzero(self.active).squeeze(1)
        if len(active) == 0:
            return None
        tokens = int(new.max()) + 1
        pairs, member = torch.unique((branch * tokens + new)[active], return_inverse=True)
        self._keep(active, pairs // tokens)
        self.branch = member
        if len(pairs) == len(member):  # from here on no two responses are equal
            self.alive, self.branch = self.alive[member.argsort()], None
        following: Tensor = pairs % tokens
        return following

    def _keep(self, responses: Tensor, rows: Tensor) -> None:
        """Keep the responses at the indices ``responses``, and the model's rows at the indices ``rows``.

        ``rows`` gives the new order of the model's rows; a row may occur several times.
        """
        self.alive = self.alive[responses]
        self.active = torch.ones_like(self.alive, dtype=torch.bool)
        count = len(self.prefilled.last)
        if len(rows) != count or not torch.equal(rows, torch.arange(count, device=rows.device)):
            self.prefilled = self.prefilled.select(rows)


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
