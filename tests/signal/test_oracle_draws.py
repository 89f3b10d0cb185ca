"""Functions of trajectories, prompts, chance and logits against the oracle: 2,000 draws of each."""

import random
from collections.abc import Callable

import pytest
import torch
from oracle import choices, rows, trajectories, vocabulary
from oracle.draws import CASES, cases

from rl_sentinel.signal import covariance, minibatches, reduce, steps
from rl_sentinel.signal.advantage import rloo
from rl_sentinel.signal.logprob import logprobs, logprobs_and_entropy
from rl_sentinel.signal.merging import Step, counts, merge

MODES: tuple[reduce.Mode, ...] = ("token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum", "token-sum")


def _trajectories(source: random.Random) -> tuple[list[int], list[int], list[bool], list[bool], list[float]]:
    """Trajectories of one to four steps in shuffled order: ids, prompts, which is last, which is live, rewards."""
    told: list[tuple[int, int, bool]] = []
    for one in source.sample(range(-9, 9), source.randint(1, 5)):
        group, count = source.choice([-3, 7]), source.randint(1, 4)
        told += [(one, group, n == count - 1) for n in range(count)]
    source.shuffle(told)
    live, reward = [source.random() < 0.8 for _ in told], [source.gauss(0, 1) for _ in told]
    return [t[0] for t in told], [t[1] for t in told], [t[2] for t in told], live, reward


def _last_steps(source: random.Random) -> None:
    ids, _, last, _, _ = _trajectories(source)
    found = steps.last_steps(trajectory=torch.tensor(ids), last=torch.tensor(last))
    assert found.tolist() == trajectories.last_steps(ids, last)


def _over_trajectories(source: random.Random) -> None:
    ids, group, last, live, reward = _trajectories(source)
    found = steps.over_trajectories(
        rloo.advantages,
        torch.tensor(reward, dtype=torch.float64),
        group=torch.tensor(group),
        live=torch.tensor(live),
        trajectory=torch.tensor(ids),
        last=torch.tensor(last),
    )
    expected = trajectories.over_trajectories(reward, group, live, ids, last, rows.rloo)
    assert found.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def _conversation(source: random.Random, name: str) -> list[trajectories.Told]:
    """Turns that read all that came before, or a history that was cut or changed."""
    found: list[trajectories.Told] = []
    history: list[int] = [source.randint(0, 2)]
    turns = source.randint(1, 5)
    for turn in range(turns):
        own = [source.randint(0, 2) for _ in range(source.randint(1, 3))]
        kept = [source.random() < 0.8 for _ in own]
        gains, chances = ([source.gauss(0, 1) for _ in own] for _ in range(2))
        found.append((name, history, own, kept, gains, chances, turn == turns - 1))
        between = [source.randint(0, 2) for _ in range(source.randint(0, 2))]
        whole = history + own
        cut = {0: whole[:-1], 1: [source.randint(0, 2)], 2: whole[1:]}.get(source.randint(0, 9), whole)
        history = cut + between
    return found


def _steps(told: list[trajectories.Told]) -> list[Step]:
    return [
        Step(name, tuple(prompt), tuple(own), tuple(kept), tuple(gains), tuple(chances), last)
        for name, prompt, own, kept, gains, chances, last in told
    ]


def _merge(source: random.Random) -> None:
    told = [step for name in ("a", "b", "c") for step in _conversation(source, name)]
    assert merge(_steps(told)) == _steps(trajectories.merge(told))


def _counts(source: random.Random) -> None:
    told = [step for name in ("a", "b") for step in _conversation(source, name)]
    expected = {"num_seq_before_merge": len(told), "num_seq_after_merge": len(trajectories.merge(told))}
    assert counts(_steps(told), merge(_steps(told))) == expected


def _prompt_minibatches(source: random.Random) -> None:
    group = [source.choice([-3, 0, 5, 7, 2**40]) for _ in range(source.randint(1, 9))]
    prompts = source.randint(1, 4)
    found = minibatches.prompt_minibatches(torch.tensor(group), prompts=prompts, generator=None)
    assert [part.tolist() for part in found] == choices.prompt_minibatches(group, prompts)
    chance = torch.Generator().manual_seed(source.randint(0, 99))
    shuffled = minibatches.prompt_minibatches(torch.tensor(group), prompts=prompts, generator=chance)
    sizes = [len({group[b] for b in part.tolist()}) for part in shuffled]
    assert sizes == [len({group[b] for b in part.tolist()}) for part in found]
    assert sorted(b for part in shuffled for b in part.tolist()) == list(range(len(group)))


def _aggregation(source: random.Random) -> None:
    mask = [[source.random() < 0.5 for _ in range(3)] for _ in range(source.randint(1, 4))]
    for mode in MODES:
        length = source.randint(1, 9) if mode == "token-sum" else None
        found = minibatches.aggregation(mode, mask=torch.tensor(mask), length=length)
        assert (found.mode, found.denominator) == (mode, choices.denominator(mode, mask, length))


def _prompt_mean(source: random.Random) -> None:
    rows = range(source.randint(1, 6))
    tokens, group = [source.randint(0, 3) for _ in rows], [source.choice([-3, 7, 2**40]) for _ in rows]
    found = minibatches.prompt_mean(torch.tensor(tokens), group=torch.tensor(group))
    assert found.prompt_tokens is not None
    assert (found.mode, found.denominator, found.prompt_tokens.tolist()) == (
        "prompt-mean",
        *choices.of_prompts(tokens, group),
    )
    mask = torch.arange(3) < torch.tensor(tokens).unsqueeze(1)
    again = minibatches.aggregation("prompt-mean", mask=mask, group=torch.tensor(group))
    assert again.denominator == found.denominator
    share = again.shares(mask=mask)
    assert share is not None
    assert share.tolist() == [max(1, n) for n in found.prompt_tokens.tolist()]


def _drawn_between(source: random.Random) -> None:
    (x,) = cases(1, seed=source.randint(0, 2**31))
    share = source.choice([0.1, 0.5, 1.0])
    chance = torch.Generator().manual_seed(source.randint(0, 99))
    found = covariance.drawn_between(x.value, mask=x.mask, low=-0.5, high=0.8, share=share, generator=chance)
    among = choices.between(x.value.tolist(), x.mask.tolist(), -0.5, 0.8)
    assert {tuple(place) for place in found.nonzero().tolist()} <= set(among)
    assert int(found.sum()) == min(len(among), choices.how_many(x.mask.tolist(), share))


#: Function -> one draw of it.
HELD: dict[str, Callable[[random.Random], None]] = {
    "steps.last_steps": _last_steps,
    "steps.over_trajectories": _over_trajectories,
    "merging.merge": _merge,
    "merging.counts": _counts,
    "minibatches.prompt_minibatches": _prompt_minibatches,
    "minibatches.aggregation": _aggregation,
    "minibatches.prompt_mean": _prompt_mean,
    "covariance.drawn_between": _drawn_between,
    "logprob.logprobs": lambda source: _from_logits(source, entropy=False),
    "logprob.logprobs_and_entropy": lambda source: _from_logits(source, entropy=True),
}


@pytest.mark.parametrize("name", HELD)
def test_draws(name: str) -> None:
    source = random.Random(0)
    for _ in range(CASES):
        HELD[name](source)


def _from_logits(source: random.Random, *, entropy: bool) -> None:
    """Values, and slopes of a random mix of them; rows that are not wanted are NaN, a logit may be minus infinity."""
    count, size, temperature = source.randint(1, 4), source.randint(1, 5), source.choice([0.5, 1.0, 1.7])
    logits = [[source.gauss(0, 3) for _ in range(size)] for _ in range(count)]
    token = [source.randrange(size) for _ in range(count)]
    wanted = [source.random() < 0.7 for _ in range(count)]
    for b, row in enumerate(logits):
        if not wanted[b]:
            logits[b] = [torch.nan] * size
        elif size > 1 and source.random() < 0.3:
            row[(token[b] + 1) % size] = -torch.inf
    leaf = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    function = logprobs_and_entropy if entropy else logprobs
    made = function(leaf, torch.tensor(token), mask=torch.tensor(wanted), temperature=temperature)
    found = made if isinstance(made, tuple) else (made,)
    share = torch.tensor([[source.gauss(0, 1) for _ in range(count)] for _ in found], dtype=torch.float64)
    (slopes,) = torch.autograd.grad((torch.stack(found) * share).sum(), leaf)
    for b, row in enumerate(logits):
        values, parts = _plain(row, token[b], temperature) if wanted[b] else ([0.0, 0.0], [[0.0] * size] * 2)
        assert [f[b].item() for f in found] == pytest.approx(values[: len(found)], rel=1e-9, abs=1e-12)
        mixed = [sum(w * part[v] for w, part in zip(share[:, b].tolist(), parts, strict=False)) for v in range(size)]
        assert slopes[b].tolist() == pytest.approx(mixed, rel=1e-9, abs=1e-12)


def _plain(row: list[float], token: int, temperature: float) -> tuple[list[float], list[list[float]]]:
    """Log-prob and entropy, and the slopes of both."""
    values = [vocabulary.logprob(row, token, temperature), vocabulary.entropy(row, temperature)]
    return values, [vocabulary.logprob_slopes(row, token, temperature), vocabulary.entropy_slopes(row, temperature)]
