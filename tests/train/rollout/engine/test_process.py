"""Sampling in process: what is told of a token is what the model says of it, however rows are batched."""

import torch

from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.rollout.engine.process import Engine, _picked
from rl_sentinel.train.rollout.episodes import laid
from rl_sentinel.train.update.response_logprobs import scored_all
from training import recipe, sampled

WIDE = {"prompts": 6, "responses": 4, "tokens": 8}


def _laid() -> tuple[Laid, torch.Tensor]:
    _, policy, episodes = sampled(recipe(rollout=WIDE))
    sequences = laid(episodes, merged=True, padding=policy.padding)
    return sequences, scored_all(policy, sequences, temperature=1.0, size=7)


def test_logprobs_are_those_of_the_model() -> None:
    """The decode with a cache against one pass over whole sequences."""
    sequences, again = _laid()
    told, mask = sequences.rollout.rollout_logprob, sequences.rollout.mask
    assert told is not None
    assert isinstance(mask, torch.Tensor)
    assert len(set(sequences.length.tolist())) > 1
    torch.testing.assert_close(told[mask], again[mask], atol=2e-5, rtol=1e-5)


def test_batching_does_not_change_what_is_drawn() -> None:
    """One row at a time, all at once, prompts of other lengths beside it: the same tokens."""
    _, policy, _ = sampled(recipe())
    prompts = [policy.text.ids(text) for text in ("a", "ba01", "ab", "b")]
    chance = torch.rand(4, 6, generator=torch.Generator().manual_seed(1))
    whole = Engine(policy, 1.0, 6).sample(prompts, chance)
    alone = [Engine(policy, 1.0, 6).sample([p], chance[n : n + 1])[0] for n, p in enumerate(prompts)]
    paired = Engine(policy, 1.0, 6, rows=2).sample(prompts, chance)
    assert [s.token for s in whole] == [s.token for s in alone] == [s.token for s in paired]
    assert len({s.token for s in whole}) == 4


def test_response_ends_with_its_end() -> None:
    """Or is cut at the most tokens, and then has not ended."""
    _, policy, _ = sampled(recipe())
    prompts = [policy.text.ids("a")] * 40
    found = Engine(policy, 1.0, 3, version=5).sample(
        prompts, torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    )
    assert {s.ended for s in found} == {True, False}
    for one in found:
        assert one.ended == (one.token[-1] == policy.end)
        assert policy.end not in one.token[:-1]
        assert (len(one.token) == len(one.logprob) <= 3, one.version) == (True, 5)
        assert one.ended or len(one.token) == 3


def test_number_picks_the_token_at_its_place() -> None:
    """Shares of .25, 0, .5, .25: bounds belong to the token above, and a share of 0 is never picked."""
    spread = torch.tensor([[0.25, 0.0, 0.5, 0.25]]).log().expand(6, 4)
    assert _picked(spread, torch.tensor([0.0, 0.2, 0.25, 0.7, 0.75, 1.0])).tolist() == [0, 0, 2, 2, 3, 3]


def test_temperature_is_that_of_the_logprobs() -> None:
    """Log-probs are of the distribution that was sampled."""
    _, policy, _ = sampled(recipe())
    prompt = policy.text.ids("a")
    (one,) = Engine(policy, 0.5, 1).sample([prompt], torch.tensor([[0.5]]))
    logits = policy(torch.tensor([prompt]))[0, -1]
    assert abs(one.logprob[0] - float((logits / 0.5).log_softmax(0)[one.token[0]].detach())) < 1e-5


def test_greedy_response_is_the_likeliest_token_each_time() -> None:
    """Against the model itself, a token at a time; chance is not looked at."""
    _, policy, _ = sampled(recipe())
    prompts = [policy.text.ids(text) for text in ("a", "ba01", "+")]
    one, other = (Engine(policy, 0.7, 6).sample(prompts, torch.full((3, 6), x), greedy=True) for x in (0.0, 0.9))
    assert one == other
    for prompt, found in zip(prompts, one, strict=True):
        read = list(prompt)
        for token, logprob in zip(found.token, found.logprob, strict=True):
            own = (policy(torch.tensor([read]))[0, -1] / 0.7).log_softmax(0).detach()
            assert token == int(own.argmax())
            assert abs(logprob - float(own[token])) < 1e-4
            read.append(token)
    assert len({f.token for f in one}) > 1
