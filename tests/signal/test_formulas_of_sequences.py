"""Functions of trajectories, prompts, random choices and logits equal plain expressions of them."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from draws import CASES, cases
from formula_pairs import MODES

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.path_quantities import LAID_OUT
from rl_sentinel.formulas.trajectories import Turn, merge_turns
from rl_sentinel.signal import covariance, minibatches, steps
from rl_sentinel.signal.advantage import grpo
from rl_sentinel.signal.logprob import (
    logprobs,
    logprobs_and_entropy,
    logprobs_and_entropy_from_hidden,
    logprobs_from_hidden,
    squared_probabilities_from_hidden,
)
from rl_sentinel.signal.merging import counts, merge
from rl_sentinel.signal.trajectory_step import Step

CENTERED = partial(grpo.advantages, standardize=False, epsilon=0.0)


def _trajectories(source: random.Random) -> list[tuple[int, int, bool]]:
    """Id, prompt and whether it is the last, of the steps of trajectories of one to four steps in shuffled order."""
    found: list[tuple[int, int, bool]] = []
    for one in source.sample(range(-9, 9), source.randint(1, 5)):
        group, count = source.choice([-3, 7]), source.randint(1, 4)
        found += [(one, group, n == count - 1) for n in range(count)]
    source.shuffle(found)
    return found


def _over_trajectories(source: random.Random) -> None:
    drawn = _trajectories(source)
    trajectory, group, last = (torch.tensor(column) for column in zip(*drawn, strict=True))
    live = torch.tensor([source.random() < 0.8 for _ in drawn])
    reward = torch.tensor([source.gauss(0, 1) for _ in drawn], dtype=torch.float64)
    found = steps.over_trajectories(CENTERED, reward, group=group, live=live, trajectory=trajectory, last=last)
    batch = batch_of(live.unsqueeze(1), reward=reward, group=group, trajectory=trajectory, last_step=last)
    expected = LAID_OUT["outcomes of trajectories, centered"](batch, {})
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    ends = {one: b for b, (one, _, is_last) in enumerate(drawn) if is_last}
    assert steps.last_steps(trajectory=trajectory, last=last).tolist() == [ends[one] for one in sorted(ends)]


def conversation(source: random.Random, name: str) -> list[Turn]:
    """Turns that read all that came before, or a history that was cut or changed.

    Each sampled token has a number that says whether it is trained, a reward and a log-prob.
    """
    found: list[Turn] = []
    history: list[int] = [source.randint(0, 2)]
    for _ in range(source.randint(1, 5)):
        own = [source.randint(0, 2) for _ in range(source.randint(1, 3))]
        trained = [float(source.random() < 0.8) for _ in own]
        found.append((name, history, own, [trained, *([source.gauss(0, 1) for _ in own] for _ in range(2))]))
        whole = history + own
        cut = {0: whole[:-1], 1: [source.randint(0, 2)], 2: whole[1:]}.get(source.randint(0, 9), whole)
        history = cut + [source.randint(0, 2) for _ in range(source.randint(0, 2))]
    return found


def steps_of(turns: list[Turn]) -> list[Step]:
    """Turns as steps, of which the last of each name ends the trajectory."""
    names = [name for name, *_ in turns]
    return [
        Step(
            name,
            tuple(prompt),
            tuple(own),
            tuple(map(bool, values[0])),
            tuple(values[1]),
            tuple(values[2]),
            name not in names[i + 1 :],
        )
        for i, (name, prompt, own, values) in enumerate(turns)
    ]


def _merge(source: random.Random) -> None:
    turns = [turn for name in ("a", "b", "c") for turn in conversation(source, name)]
    expected = merge_turns(turns)
    merged = merge(steps_of(turns))
    assert merged == steps_of(expected)
    sizes = {"num_seq_before_merge": len(turns), "num_seq_after_merge": len(expected)}
    assert counts(steps_of(turns), merged) == sizes


def _prompt_minibatches(source: random.Random) -> None:
    group = torch.tensor([source.choice([-3, 0, 5, 7, 2**40]) for _ in range(source.randint(1, 9))])
    prompts = source.randint(1, 4)
    found = minibatches.prompt_minibatches(group, prompts=prompts, generator=None)
    turn = LAID_OUT["mini-batches of prompts in turn"](
        batch_of(torch.ones(len(group), 1), group=group), {"prompts": prompts}
    )
    assert [part.tolist() for part in found] == [
        [b for b, n in enumerate(turn.tolist()) if n == part] for part in range(int(turn.max()) + 1)
    ]
    chance = torch.Generator().manual_seed(source.randint(0, 99))
    shuffled = minibatches.prompt_minibatches(group, prompts=prompts, generator=chance)
    sizes = [[len(set(group[part].tolist())) for part in parts] for parts in (shuffled, found)]
    assert sizes[0] == sizes[1]
    assert sorted(torch.cat(list(shuffled)).tolist()) == list(range(len(group)))


def _aggregation(source: random.Random) -> None:
    tokens = [source.randint(0, 3) for _ in range(source.randint(1, 6))]
    group = torch.tensor([source.choice([-3, 7, 2**40]) for _ in tokens])
    mask, live, length = torch.arange(3) < torch.tensor(tokens).unsqueeze(1), sum(n > 0 for n in tokens), 7
    of_prompts = [sum(n for n, g in zip(tokens, group, strict=True) if g == own) for own in group]
    expected = {
        "token-mean": sum(tokens),
        "token-sum": live * length,
        "prompt-mean": len({int(g) for g, n in zip(group, of_prompts, strict=True) if n}),
    }
    for mode in MODES:
        found = minibatches.aggregation(mode, mask=mask, length=length if mode == "token-sum" else None, group=group)
        assert (found.mode, found.denominator) == (mode, expected.get(mode, live) or 1)
    found = minibatches.prompt_mean(torch.tensor(tokens), group=group)
    assert found.prompt_tokens is not None
    assert (found.denominator, found.prompt_tokens.tolist()) == (expected["prompt-mean"] or 1, of_prompts)
    share = found.shares(mask=mask)
    assert share is not None
    assert share.tolist() == [max(1, n) for n in of_prompts]


def _drawn_between(source: random.Random) -> None:
    (x,) = cases(1, seed=source.randint(0, 2**31))
    share = source.choice([0.1, 0.5, 1.0])
    chance = torch.Generator().manual_seed(source.randint(0, 99))
    found = covariance.drawn_between(x.value, mask=x.mask, low=-0.5, high=0.8, share=share, generator=chance)
    among = x.mask & (x.value > -0.5) & (x.value < 0.8)
    assert not (found & ~among).any()
    assert int(found.sum()) == min(int(among.sum()), max(1, int(share * int(x.mask.sum()))))


def _from_logits(source: random.Random) -> None:
    """Values, and gradients of a random mix of them, with NaN in rows off the mask; a logit may be minus infinity."""
    count, temperature = source.randint(1, 4), source.choice([0.5, 1.0, 1.7])
    logits = torch.tensor([[source.gauss(0, 3) for _ in range(3)] for _ in range(count)], dtype=torch.float64)
    token = torch.tensor([source.randrange(3) for _ in range(count)])
    mask = torch.tensor([source.random() < 0.7 for _ in range(count)])
    excluded = torch.tensor([source.random() < 0.3 for _ in range(count)])
    logits[excluded, (token[excluded] + 1) % 3] = -torch.inf
    logits[~mask] = torch.nan
    leaf = logits.clone().requires_grad_()
    batch = batch_of(mask.unsqueeze(1), token=token.unsqueeze(1), logits=leaf.unsqueeze(1))
    expected = [
        LAID_OUT[n](batch, {"temperature": temperature}).squeeze(1)
        for n in ("log-prob of the token", "entropy of the logits")
    ]
    both = logprobs_and_entropy(leaf, token, mask=mask, temperature=temperature)
    for found in (both, (logprobs(leaf, token, mask=mask, temperature=temperature),)):
        share = torch.tensor([[source.gauss(0, 1) for _ in range(count)] for _ in found], dtype=torch.float64)
        formula = torch.stack(expected[: len(found)])
        torch.testing.assert_close(torch.stack(list(found)), formula, rtol=1e-9, atol=1e-12)
        slopes = [
            torch.autograd.grad((x * share).sum(), leaf, retain_graph=True)[0]
            for x in (torch.stack(list(found)), formula)
        ]
        torch.testing.assert_close(slopes[0][mask], slopes[1][mask], rtol=1e-9, atol=1e-12)
        assert not slopes[0][~mask].any()


def _from_hidden(source: random.Random) -> None:
    """Equal to the formulas of the logits; rows off the mask are NaN, and their gradient is 0."""
    count, temperature = source.randint(1, 4), source.choice([0.5, 1.0, 1.7])
    hidden = torch.tensor([[source.gauss(0, 2) for _ in range(2)] for _ in range(count)], dtype=torch.float64)
    weight = torch.tensor([[source.gauss(0, 2) for _ in range(2)] for _ in range(3)], dtype=torch.float64)
    token = torch.tensor([source.randrange(3) for _ in range(count)])
    mask = torch.tensor([source.random() < 0.7 for _ in range(count)])
    hidden[~mask] = torch.nan
    leaf, head = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    logits = torch.where(mask.unsqueeze(1), leaf, 0.0) @ head.t()
    batch = batch_of(mask.unsqueeze(1), token=token.unsqueeze(1), logits=logits.unsqueeze(1))
    expected = [
        LAID_OUT[n](batch, {"temperature": temperature}).squeeze(1)
        for n in ("log-prob of the token", "entropy of the logits")
    ]
    both = logprobs_and_entropy_from_hidden(leaf, head, token, mask=mask, temperature=temperature)
    for found in (both, (logprobs_from_hidden(leaf, head, token, mask=mask, temperature=temperature),)):
        formula = torch.stack(expected[: len(found)])
        torch.testing.assert_close(torch.stack(list(found)), formula, rtol=1e-9, atol=1e-12)
        share = torch.tensor([[source.gauss(0, 1) for _ in range(count)] for _ in found], dtype=torch.float64)
        sums = [(x * share).sum() for x in (torch.stack(list(found)), formula)]
        slopes = [torch.autograd.grad(total, (leaf, head), retain_graph=True) for total in sums]
        torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-9, atol=1e-12)
        assert not slopes[0][0][~mask].any()
    squares = squared_probabilities_from_hidden(leaf, head, mask=mask, temperature=temperature)
    plain = torch.softmax(logits.detach() / temperature, dim=1).square().sum(1) * mask
    torch.testing.assert_close(squares, plain, rtol=1e-9, atol=1e-12)


#: Function -> one comparison on random input.
COMPARED: dict[str, Callable[[random.Random], None]] = {
    **dict.fromkeys(("steps.last_steps", "steps.over_trajectories"), _over_trajectories),
    **dict.fromkeys(("merging.merge", "merging.counts"), _merge),
    "minibatches.prompt_minibatches": _prompt_minibatches,
    **dict.fromkeys(("minibatches.aggregation", "minibatches.prompt_mean"), _aggregation),
    "covariance.drawn_between": _drawn_between,
    **dict.fromkeys(("logprob.logprobs", "logprob.logprobs_and_entropy"), _from_logits),
    **dict.fromkeys(
        (f"logprob.{n}_from_hidden" for n in ("logprobs", "logprobs_and_entropy", "squared_probabilities")),
        _from_hidden,
    ),
}


def _named() -> list[Any]:
    """Each comparison once, under the names of its functions."""
    names: dict[Callable[[random.Random], None], list[str]] = {}
    for name, compare in COMPARED.items():
        names.setdefault(compare, []).append(name)
    return [pytest.param(compare, id=" ".join(own)) for compare, own in names.items()]


@pytest.mark.slow
@pytest.mark.parametrize("compare", _named())
def test_random_input(compare: Callable[[random.Random], None]) -> None:
    source = random.Random(0)
    for _ in range(CASES):
        compare(source)
