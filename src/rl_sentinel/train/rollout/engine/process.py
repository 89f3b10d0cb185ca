"""Sampling in this process: a batch at a time, each token read once, rows that ended left behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.train.config.recipe import Sampling
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import prefix
from rl_sentinel.train.rollout.interfaces import Sampled


@dataclass(slots=True)
class Engine:
    """Samples with a policy of this process, ``rows`` at a time; a ``shared`` one is that which learns."""

    policy: Policy
    temperature: float
    tokens: int
    rows: int = 256
    version: int = 0
    shared: bool = False

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Sample with these weights from now on; what is shared has them already."""
        if not self.shared:
            self.policy.model.load_state_dict(weights)
        self.version = version

    def sample(
        self, prompts: Sequence[tuple[int, ...]], uniform: Float[Tensor, "B T"], *, greedy: bool = False
    ) -> list[Sampled]:
        """One response to each prompt, as ``sampling.Engine`` says; prompts of like length go together."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        found: dict[int, Sampled] = {}
        for start in range(0, len(order), self.rows):
            rows = order[start : start + self.rows]
            responses = self._decoded([prompts[i] for i in rows], uniform[torch.tensor(rows)], greedy=greedy)
            found |= dict(zip(rows, responses, strict=True))
        return [found[i] for i in range(len(prompts))]

    @torch.inference_mode()
    def _decoded(self, prompts: Sequence[tuple[int, ...]], uniform: Tensor, *, greedy: bool) -> list[Sampled]:
        policy, device, rows = self.policy, self.policy.device, len(prompts)
        uniform, tokens = uniform.to(device), min(self.tokens, uniform.shape[1])
        read = prefix(policy, prompts, width=tokens)
        logits = read.logits
        drawn = torch.full((rows, tokens), policy.padding, device=device)
        logprob = torch.zeros(rows, tokens, device=device)
        alive, going = torch.arange(rows, device=device), torch.ones(rows, dtype=torch.bool, device=device)
        for place in range(tokens):
            spread = torch.log_softmax(logits[:, -1].float() / self.temperature, dim=1)
            new = spread.argmax(dim=1) if greedy else _picked(spread, uniform[alive, place])
            drawn[alive, place] = torch.where(going, new, policy.padding)
            logprob[alive, place] = torch.where(going, spread.gather(1, new.unsqueeze(1)).squeeze(1), 0.0)
            going = going & (new != policy.end)
            left = int(going.sum())
            if left == 0 or place == tokens - 1:
                break
            if left <= len(going) // 2:
                kept = torch.nonzero(going).squeeze(1)
                read = read.kept(kept)
                alive, going, new = alive[kept], going[kept], new[kept]
            logits = policy(new.unsqueeze(1), real=read.followed(place + 1), cache=read.memory, last=True)
        return _taken(drawn.tolist(), logprob.tolist(), policy.end, self.version)


def engine(sampling: Sampling, policy: Policy, *, shared: bool) -> Engine:
    """The engine of a recipe."""
    return Engine(policy, sampling.temperature, sampling.tokens, shared=shared)


def _picked(spread: Tensor, uniform: Tensor) -> Tensor:
    """The token at which the summed probabilities pass the number drawn; one of probability 0 is never passed."""
    total = spread.exp().double().cumsum(dim=1)
    aim = uniform.double().unsqueeze(1) * total[:, -1:]
    return torch.searchsorted(total, aim, right=True).squeeze(1).clamp(max=spread.shape[1] - 1)


def _taken(drawn: list[list[int]], logprob: list[list[float]], end: int, version: int) -> list[Sampled]:
    found = []
    for tokens, known in zip(drawn, logprob, strict=True):
        ended = end in tokens
        size = tokens.index(end) + 1 if ended else len(tokens)
        found.append(Sampled(tuple(tokens[:size]), tuple(known[:size]), ended, version))
    return found
