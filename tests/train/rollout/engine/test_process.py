"""The engine in this process: log-probs are the model's, however rows are batched."""

import pytest
import torch

from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.model.prefill import prefill
from rl_sentinel.train.rollout.engine.process import Engine, _Decoding, _inverse_cdf
from rl_sentinel.train.rollout.episodes import lay_out_episodes
from rl_sentinel.train.update.response_logprobs import compute_for_rows
from training import recipe, sample_episodes

WIDE = {"prompts": 6, "responses": 4, "tokens": 8}


def _laid() -> tuple[Laid, torch.Tensor]:
    _, policy, episodes = sample_episodes(recipe(rollout=WIDE))
    laid = lay_out_episodes(episodes, merged=True, padding=policy.padding)
    return laid, compute_for_rows(policy, laid, temperature=1.0, size=7)


def test_logprobs_are_those_of_the_model() -> None:
    laid, recomputed = _laid()
    logprob, mask = laid.rollout.rollout_logprob, laid.rollout.mask
    assert logprob is not None
    assert isinstance(mask, torch.Tensor)
    assert len(set(laid.length.tolist())) > 1
    torch.testing.assert_close(logprob[mask], recomputed[mask], atol=2e-5, rtol=1e-5)


def test_batching_does_not_change_samples() -> None:
    _, policy, _ = sample_episodes(recipe())
    prompts = [policy.tokenizer.encode(text) for text in ("a", "ba01", "ab", "b")]
    uniform = torch.rand(4, 6, generator=torch.Generator().manual_seed(1))
    whole = Engine(policy, 1.0, 6).sample(prompts, uniform)
    alone = [Engine(policy, 1.0, 6).sample([p], uniform[n : n + 1])[0] for n, p in enumerate(prompts)]
    paired = Engine(policy, 1.0, 6, rows=2).sample(prompts, uniform)
    assert [s.token for s in whole] == [s.token for s in alone] == [s.token for s in paired]
    assert len({s.token for s in whole}) == 4


def test_responses_that_are_equal_so_far_are_decoded_once() -> None:
    """Sixteen responses to two prompts: with each token more rows, at most one per different beginning."""
    _, policy, _ = sample_episodes(recipe())
    prompts = [policy.tokenizer.encode(text) for text in ("a", "ba01") for _ in range(8)]
    uniform, seen = torch.rand(16, 6, generator=torch.Generator().manual_seed(2)), list[int]()
    policy.model.register_forward_pre_hook(lambda _model, inputs: seen.append(len(inputs[0])))
    together = Engine(policy, 1.0, 6).sample(prompts, uniform)
    rows, seen[:] = list(seen), []
    alone = [Engine(policy, 1.0, 6).sample([p], uniform[n : n + 1])[0] for n, p in enumerate(prompts)]
    assert [one.token for one in together] == [one.token for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
    responses = [(prompt, one.token) for prompt, one in zip(prompts, together, strict=True)]
    begun = [{(p, t[:n]) for p, t in responses if not {*t[:n]} & {*policy.ends}} for n in range(6)]
    assert rows == [len(different) for different in begun]
    assert len(begun[0]) == 2 < len(begun[1]) < 16


@pytest.mark.on_cpu
@pytest.mark.parametrize(("ended", "rows"), [(1, 4), (2, 2), (3, 1)])
def test_different_responses_leave_the_batch_once_half_have_ended(ended: int, rows: int) -> None:
    _, policy, _ = sample_episodes(recipe())
    prefilled = prefill(policy, [policy.tokenizer.encode(text) for text in ("a", "b", "ab", "ba")], width=4)
    decoding = _Decoding(prefilled, torch.arange(4), torch.arange(4))
    decoding.branch = None
    other = next(token for token in range(9) if token not in policy.ends)
    new = torch.tensor([*[policy.ends[0]] * ended, *[other] * (4 - ended)])
    decoding.end(new, policy.ends)
    following = decoding.advance(new)
    assert following is not None
    assert (len(following), len(decoding.alive), len(decoding.prefilled.last)) == (rows, rows, rows)


def test_response_stops_at_its_end_token() -> None:
    _, policy, _ = sample_episodes(recipe())
    prompts = [policy.tokenizer.encode("a")] * 40
    responses = Engine(policy, 1.0, 3, version=5).sample(
        prompts, torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    )
    assert {s.ended for s in responses} == {True, False}
    for one in responses:
        assert one.ended == (one.token[-1] == policy.ends[0])
        assert policy.ends[0] not in one.token[:-1]
        assert (len(one.token) == len(one.logprob) <= 3, one.version) == (True, 5)
        assert one.ended or len(one.token) == 3


def test_uniform_number_selects_the_token() -> None:
    """Probabilities .25, 0, .5, .25: a bound belongs to the next token, and probability 0 is never sampled."""
    distribution = torch.tensor([[0.25, 0.0, 0.5, 0.25]]).log().expand(6, 4)
    assert _inverse_cdf(distribution, torch.tensor([0.0, 0.2, 0.25, 0.7, 0.75, 1.0])).tolist() == [0, 0, 2, 2, 3, 3]


@pytest.mark.on_cpu
def test_logprobs_include_the_temperature() -> None:
    _, policy, _ = sample_episodes(recipe())
    prompt = policy.tokenizer.encode("a")
    (one,) = Engine(policy, 0.5, 1).sample([prompt], torch.tensor([[0.5]]))
    logits = policy(torch.tensor([prompt]))[0, -1]
    assert abs(one.logprob[0] - float((logits / 0.5).log_softmax(0)[one.token[0]].detach())) < 1e-5


@pytest.mark.on_cpu
def test_greedy_response_takes_the_most_likely_tokens() -> None:
    _, policy, _ = sample_episodes(recipe())
    prompts = [policy.tokenizer.encode(text) for text in ("a", "ba01", "+")]
    one, other = (Engine(policy, 0.7, 6).sample(prompts, torch.full((3, 6), x), greedy=True) for x in (0.0, 0.9))
    assert one == other
    for prompt, responses in zip(prompts, one, strict=True):
        read = list(prompt)
        for token, logprob in zip(responses.token, responses.logprob, strict=True):
            own = (policy(torch.tensor([read]))[0, -1] / 0.7).log_softmax(0).detach()
            assert token == int(own.argmax())
            assert abs(logprob - float(own[token])) < 1e-4
            read.append(token)
    assert len({f.token for f in one}) > 1
