"""Log-probs at the places of responses."""

from dataclasses import replace

import pytest
import torch

from rl_sentinel.train.episodes import laid
from rl_sentinel.train.scoring import scored, scored_all
from training import recipe, sampled


def test_each_token_is_scored_by_what_stands_before_it() -> None:
    """Against the softmax of one sequence at a time; exactly 0 behind a response."""
    _, policy, episodes = sampled(recipe(rollout={"prompts": 3, "responses": 2, "tokens": 6}))
    sequences = laid(episodes, merged=True, padding=policy.padding)
    found = scored_all(policy, sequences, temperature=0.7, size=4)
    for row, (start, length) in enumerate(
        zip(sequences.prompt_length.tolist(), sequences.length.tolist(), strict=True)
    ):
        token = sequences.token[row, : start + length]
        own = (policy(token.unsqueeze(0))[0] / 0.7).log_softmax(1)
        expected = [float(own[start + t - 1, token[start + t]].detach()) for t in range(length)]
        torch.testing.assert_close(found[row, :length], torch.tensor(expected), atol=1e-5, rtol=1e-5)
        assert (found[row, length:] == 0).all()


def test_rows_are_scored_in_any_order() -> None:
    """With a gradient, and as among all."""
    _, policy, episodes = sampled(recipe())
    sequences = laid(episodes, merged=True, padding=policy.padding)
    rows = torch.tensor([5, 0])
    found = scored(policy, sequences, rows, temperature=1.0)
    assert found.requires_grad
    torch.testing.assert_close(found.detach(), scored_all(policy, sequences, temperature=1.0, size=99)[rows])


@pytest.mark.parametrize("tokens", [1, 6])
def test_reading_prompts_once_leaves_the_gradient(tokens: int) -> None:
    """As by one pass over whole sequences, which a sharded model takes; prompts of two lengths, in float64."""
    _, policy, episodes = sampled(recipe(rollout={"prompts": 3, "responses": 4, "tokens": tokens}))
    for episode in episodes[:4]:
        episode.steps[0] = replace(episode.steps[0], prompt=(5, *episode.steps[0].prompt))
    sequences = laid(episodes, merged=True, padding=policy.padding)
    assert len(set(sequences.prompt_length.tolist())) == 2
    policy.model.double()
    found, gradients = [], []
    for policy.at_once in (False, True):
        policy.model.zero_grad()
        logprob = scored(policy, sequences, torch.arange(12), temperature=0.7)
        (logprob * torch.arange(logprob.numel()).view_as(logprob).sin()).sum().backward()  # type: ignore[no-untyped-call]  # torch's own
        found.append(logprob.detach())
        gradients.append(torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]))
    assert float(gradients[0].abs().max()) > 1e-2
    for pair in (found, gradients):
        torch.testing.assert_close(*pair, atol=1e-10, rtol=1e-8)
