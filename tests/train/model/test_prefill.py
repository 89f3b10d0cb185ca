"""Equal prompts are prefilled once, with unchanged logits."""

import pytest
import torch

from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import prefill
from training import recipe, sample_episodes


class _CountingPolicy:
    """A policy that counts its rows."""

    def __init__(self, policy: Policy) -> None:
        self.padding, self.device, self.new_cache, self.rows = policy.padding, policy.device, policy.new_cache, 0
        self._policy = policy

    def __call__(self, token: torch.Tensor, **kwargs: object) -> torch.Tensor:
        self.rows += len(token)
        return self._policy(token, **kwargs)


@pytest.mark.on_cpu
def test_each_prompt_runs_once() -> None:
    _, policy, _ = sample_episodes(recipe())
    prompts, counting = [(3, 4, 5), (7,), (3, 4, 5), (7,), (9, 2)], _CountingPolicy(policy)
    prefilled = prefill(counting, prompts, width=2)  # type: ignore[arg-type]  # called like a policy
    assert counting.rows == 3
    for row, prompt in enumerate(prompts):
        torch.testing.assert_close(prefilled.last[row, 0], policy(torch.tensor([prompt]))[0, -1], atol=1e-6, rtol=1e-5)


@pytest.mark.on_cpu
def test_later_tokens_attend_to_their_own_prompt() -> None:
    _, policy, _ = sample_episodes(recipe())
    for prompts in ([(3, 4, 5), (7,), (3, 4, 5)], [(3, 4), (7, 8), (3, 4)]):
        prefilled = prefill(policy, prompts, width=2).select(torch.tensor([2, 1]))
        logits = policy(torch.tensor([[6, 2], [5, 9]]), key_mask=prefilled.extended_mask(2), cache=prefilled.cache)
        for row, whole in enumerate(((*prompts[2], 6, 2), (*prompts[1], 5, 9))):
            alone = policy(torch.tensor([whole]))[0, -2:]
            torch.testing.assert_close(logits[row], alone, atol=1e-6, rtol=1e-5)
