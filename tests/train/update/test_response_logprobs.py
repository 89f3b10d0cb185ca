"""Log-probs of responses."""

from dataclasses import replace

import pytest
import torch

from rl_sentinel.train.rollout.episodes import lay_out_episodes
from rl_sentinel.train.update import response_logprobs as response_logprobs_module
from rl_sentinel.train.update.response_logprobs import (
    compute_for_rows,
    response_logprobs,
    sort_by_length,
    squared_probabilities,
)
from training import recipe, sample_episodes


@pytest.fixture(params=[0, response_logprobs_module.SINGLE_PASS], ids=["prefill", "by cost"])
def single_pass(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The most work that a pass over whole sequences may add; with 0, shared prompts are always prefilled once."""
    monkeypatch.setattr(response_logprobs_module, "SINGLE_PASS", request.param)
    return int(request.param)


@pytest.mark.usefixtures("single_pass")
@pytest.mark.on_cpu
def test_logprobs_are_those_of_single_sequences() -> None:
    _, policy, episodes = sample_episodes(recipe(rollout={"prompts": 3, "responses": 2, "tokens": 6}))
    laid = lay_out_episodes(episodes, merged=True, padding=policy.padding)
    values = compute_for_rows(policy, laid, temperature=0.7, size=4)
    for row, (start, length) in enumerate(zip(laid.prompt_length.tolist(), laid.length.tolist(), strict=True)):
        token = laid.token[row, : start + length]
        own = (policy(token.unsqueeze(0))[0] / 0.7).log_softmax(1)
        expected = [float(own[start + t - 1, token[start + t]].detach()) for t in range(length)]
        torch.testing.assert_close(values[row, :length], torch.tensor(expected), atol=1e-5, rtol=1e-5)
        assert (values[row, length:] == 0).all()


@pytest.mark.usefixtures("single_pass")
@pytest.mark.on_cpu
def test_rows_in_any_order_are_differentiable() -> None:
    _, policy, episodes = sample_episodes(recipe())
    laid = lay_out_episodes(episodes, merged=True, padding=policy.padding)
    rows = torch.tensor([5, 0])
    values = response_logprobs(policy, laid, rows, temperature=1.0)
    assert values.requires_grad
    torch.testing.assert_close(values.detach(), compute_for_rows(policy, laid, temperature=1.0, size=99)[rows])


@pytest.mark.parametrize("tokens", [1, 6])
@pytest.mark.on_cpu
def test_prefill_gives_the_gradient_of_a_single_pass(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which FSDP uses; prompts of two lengths, in float64."""
    monkeypatch.setattr(response_logprobs_module, "SINGLE_PASS", 0)
    _, policy, episodes = sample_episodes(recipe(rollout={"prompts": 3, "responses": 4, "tokens": tokens}))
    for episode in episodes[:4]:
        episode.steps[0] = replace(episode.steps[0], prompt=(5, *episode.steps[0].prompt))
    laid = lay_out_episodes(episodes, merged=True, padding=policy.padding)
    assert len(set(laid.prompt_length.tolist())) == 2
    policy.model.double()
    values, gradients = [], []
    for policy.single_pass in (False, True):
        policy.model.zero_grad()
        logprob = response_logprobs(policy, laid, torch.arange(12), temperature=0.7)
        (logprob * torch.arange(logprob.numel()).view_as(logprob).sin()).sum().backward()  # type: ignore[no-untyped-call]  # torch's own
        values.append(logprob.detach())
        gradients.append(torch.cat([w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]))
    assert float(gradients[0].abs().max()) > 1e-2
    for pair in (values, gradients):
        torch.testing.assert_close(*pair, atol=1e-10, rtol=1e-8)


@pytest.mark.on_cpu
def test_equal_rows_run_once(single_pass: int) -> None:
    _, policy, episodes = sample_episodes(recipe(rollout={"prompts": 2, "responses": 4, "tokens": 6}))
    for number, other in enumerate((0, 0, 2, 0, 4, 5, 5, 5)):
        episodes[number].steps[0] = replace(episodes[other].steps[0], trajectory=episodes[number].name)
    episodes[4].steps[0] = replace(episodes[0].steps[0], prompt=(7, 8), trajectory=episodes[4].name)
    laid = lay_out_episodes(episodes, merged=True, padding=policy.padding)
    policy.model.double()
    coefficient, row_counts = torch.arange(48.0).view(8, 6).sin(), []
    policy.model.register_forward_hook(lambda _model, given, _found: row_counts.append(len(given[0])))

    def run(parts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        policy.model.zero_grad()
        values = torch.cat([response_logprobs(policy, laid, torch.tensor(part), temperature=0.7) for part in parts])
        (values * coefficient[:, : values.shape[1]]).sum().backward()  # type: ignore[no-untyped-call]  # torch's own
        grads = [w.grad.flatten() for w in policy.model.parameters() if w.grad is not None]
        return values.detach(), torch.cat(grads).clone()

    together = run([list(range(8))])
    prompts = len({e.context for e in episodes[:4]} | {(7, 8)} | {episodes[5].context})
    assert row_counts == ([4] if single_pass else [prompts, 4])
    for one, alone in zip(together, run([[n] for n in range(8)]), strict=True):
        torch.testing.assert_close(one, alone, atol=1e-10, rtol=1e-8)
    assert float(together[1].abs().max()) > 1e-2


def test_prompts_that_no_rows_share_are_not_prefilled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_logprobs_module, "SINGLE_PASS", 0)
    _, policy, episodes = sample_episodes(recipe(rollout={"prompts": 2, "responses": 2, "tokens": 6}))
    laid = lay_out_episodes(episodes, merged=True, padding=policy.padding)
    calls = list[int]()
    policy.model.register_forward_hook(lambda *_: calls.append(1))
    for rows, count in (([0, 2], 1), ([0, 1, 2], 2)):
        calls.clear()
        response_logprobs(policy, laid, torch.tensor(rows), temperature=1.0)
        assert len(calls) == count, rows


def test_rows_of_similar_length_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_logprobs_module, "SINGLE_PASS", 0)
    _, policy, episodes = sample_episodes(recipe(rollout={"prompts": 2, "responses": 4, "tokens": 6}))
    for number, episode in enumerate(episodes):
        size, step = 5 if number % 2 else 2, episode.steps[0]
        response, zeros = (6 + number,) * size, (0.0,) * size
        step = replace(step, response=response, trained=(True,) * size, logprob=zeros, token_reward=zeros)
        episode.steps[0] = step
    laid = lay_out_episodes(episodes, merged=True, padding=policy.padding)
    assert sort_by_length(laid, torch.arange(8)).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    row_counts: list[int] = []
    policy.model.register_forward_hook(lambda _model, given, _found: row_counts.append(given[0].shape[1]))
    values = compute_for_rows(policy, laid, temperature=1.0, size=4)
    assert row_counts[1::2] == [1, 4]
    torch.testing.assert_close(values, compute_for_rows(policy, laid, temperature=1.0, size=99))


@pytest.mark.on_cpu
def test_squared_probabilities_are_those_of_the_softmax() -> None:
    _, policy, episodes = sample_episodes(recipe(rollout={"prompts": 3, "responses": 2, "tokens": 6}))
    laid = lay_out_episodes(episodes, merged=True, padding=policy.padding)
    values = compute_for_rows(policy, laid, temperature=0.7, size=4, function=squared_probabilities)
    starts, lengths = laid.prompt_length.tolist(), laid.length.tolist()
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        own = (policy(laid.token[row, : start + length].unsqueeze(0))[0] / 0.7).softmax(1).detach()
        expected = [float((own[start + t - 1] ** 2).sum()) for t in range(length)]
        torch.testing.assert_close(values[row, :length], torch.tensor(expected), atol=1e-5, rtol=1e-4)
        assert (values[row, length:] == 0).all()
    some = compute_for_rows(
        policy, laid, temperature=0.7, size=4, function=squared_probabilities, rows=torch.tensor([4, 1])
    )
    torch.testing.assert_close(some[[1, 4]], values[[1, 4]])
    assert not some[[0, 2, 3, 5]].any()
