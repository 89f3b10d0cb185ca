"""Log-probs at the places of responses."""

from dataclasses import replace

import pytest
import torch

from rl_sentinel.train.rollout.episodes import laid
from rl_sentinel.train.update.response_logprobs import by_length, scored, scored_all, squared
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


def test_rows_that_are_the_same_are_read_once() -> None:
    """Each copy has the log-probs and the gradient of a row that has none; another prompt's row is another row."""
    _, policy, episodes = sampled(recipe(rollout={"prompts": 2, "responses": 4, "tokens": 6}))
    for number, other in enumerate((0, 0, 2, 0, 4, 5, 5, 5)):
        episodes[number].steps[0] = replace(episodes[other].steps[0], trajectory=episodes[number].name)
    episodes[4].steps[0] = replace(episodes[0].steps[0], prompt=(7, 8), trajectory=episodes[4].name)
    sequences = laid(episodes, merged=True, padding=policy.padding)
    policy.model.double()
    price, read = torch.arange(48.0).view(8, 6).sin(), []
    policy.model.register_forward_hook(lambda _model, given, _found: read.append(len(given[0])))

    def asked(parts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        policy.model.zero_grad()
        found = torch.cat([scored(policy, sequences, torch.tensor(part), temperature=0.7) for part in parts])
        (found * price[:, : found.shape[1]]).sum().backward()  # type: ignore[no-untyped-call]  # torch's own
        grads = [w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]
        return found.detach(), torch.cat(grads).clone()

    together = asked([list(range(8))])
    assert read == [len({e.read for e in episodes[:4]} | {(7, 8)} | {episodes[5].read}), 4]
    for one, alone in zip(together, asked([[n] for n in range(8)]), strict=True):
        torch.testing.assert_close(one, alone, atol=1e-10, rtol=1e-8)
    assert float(together[1].abs().max()) > 1e-2


def test_rows_of_like_length_are_read_together() -> None:
    """Parts are cut to their own longest; what a part holds changes nothing of a row."""
    _, policy, episodes = sampled(recipe(rollout={"prompts": 2, "responses": 4, "tokens": 6}))
    for number, episode in enumerate(episodes):
        size, step = 5 if number % 2 else 2, episode.steps[0]
        said, zeros = (6 + number,) * size, (0.0,) * size
        step = replace(step, response=said, trained=(True,) * size, logprob=zeros, token_reward=zeros)
        episode.steps[0] = step
    sequences = laid(episodes, merged=True, padding=policy.padding)
    assert by_length(sequences, torch.arange(8)).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    read: list[int] = []
    policy.model.register_forward_hook(lambda _model, given, _found: read.append(given[0].shape[1]))
    found = scored_all(policy, sequences, temperature=1.0, size=4)
    assert read[1::2] == [1, 4]
    torch.testing.assert_close(found, scored_all(policy, sequences, temperature=1.0, size=99))


def test_squared_probabilities_are_those_of_the_softmax() -> None:
    """One sequence at a time, where each token was drawn; and rows that are asked for alone."""
    _, policy, episodes = sampled(recipe(rollout={"prompts": 3, "responses": 2, "tokens": 6}))
    sequences = laid(episodes, merged=True, padding=policy.padding)
    found = scored_all(policy, sequences, temperature=0.7, size=4, of=squared)
    starts, lengths = sequences.prompt_length.tolist(), sequences.length.tolist()
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        own = (policy(sequences.token[row, : start + length].unsqueeze(0))[0] / 0.7).softmax(1).detach()
        expected = [float((own[start + t - 1] ** 2).sum()) for t in range(length)]
        torch.testing.assert_close(found[row, :length], torch.tensor(expected), atol=1e-5, rtol=1e-4)
        assert (found[row, length:] == 0).all()
    some = scored_all(policy, sequences, temperature=0.7, size=4, of=squared, rows=torch.tensor([4, 1]))
    torch.testing.assert_close(some[[1, 4]], found[[1, 4]])
    assert not some[[0, 2, 3, 5]].any()
