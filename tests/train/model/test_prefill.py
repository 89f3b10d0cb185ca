"""Prompts that are the same are read once, and nothing else is changed by it."""

import torch

from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import prefix
from training import recipe, sampled


class _Counting:
    """A policy that counts the rows that it reads."""

    def __init__(self, policy: Policy) -> None:
        self.padding, self.device, self.memory, self.rows = policy.padding, policy.device, policy.memory, 0
        self._policy = policy

    def __call__(self, token: torch.Tensor, **how: object) -> torch.Tensor:
        self.rows += len(token)
        return self._policy(token, **how)


def test_each_prompt_is_read_once_and_stands_in_every_row() -> None:
    """Unlike lengths, in any order: logits of each row are those of its prompt alone."""
    _, policy, _ = sampled(recipe())
    prompts, counting = [(3, 4, 5), (7,), (3, 4, 5), (7,), (9, 2)], _Counting(policy)
    read = prefix(counting, prompts, width=2)  # type: ignore[arg-type]  # called in its place
    assert counting.rows == 3
    for row, prompt in enumerate(prompts):
        torch.testing.assert_close(read.logits[row, 0], policy(torch.tensor([prompt]))[0, -1], atol=1e-6, rtol=1e-5)


def test_what_follows_reads_its_own_prompt() -> None:
    """Two more tokens behind each, for rows that are kept, with and without padding."""
    _, policy, _ = sampled(recipe())
    for prompts in ([(3, 4, 5), (7,), (3, 4, 5)], [(3, 4), (7, 8), (3, 4)]):
        read = prefix(policy, prompts, width=2).kept(torch.tensor([2, 1]))
        found = policy(torch.tensor([[6, 2], [5, 9]]), real=read.followed(2), cache=read.memory)
        for row, whole in enumerate(((*prompts[2], 6, 2), (*prompts[1], 5, 9))):
            alone = policy(torch.tensor([whole]))[0, -2:]
            torch.testing.assert_close(found[row], alone, atol=1e-6, rtol=1e-5)
