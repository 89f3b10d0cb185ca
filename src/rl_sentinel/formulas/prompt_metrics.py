"""Evaluation metrics over several samples per prompt (majority vote, best of n), averaged over prompts."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations, product
from statistics import fmean

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings

#: Name of a definition -> its value.
Named = dict[str, Tensor]


def _mean(rewards: list[float]) -> dict[str, float]:
    return {"mean": fmean(rewards)}


def _deviation(rewards: list[float]) -> dict[str, float]:
    x = torch.tensor(rewards, dtype=torch.float64)
    return {"deviation (n)": x.std(correction=0).item(), "deviation (n - 1)": x.std().item() if len(x) > 1 else 0.0}


def _voted(drawn: tuple[float, ...]) -> float:
    """The reward of the most frequent answer; the mean if several are equally frequent, because one is drawn."""
    counts = Counter(drawn)
    most = max(counts.values())
    return fmean(answer for answer, count in counts.items() if count == most)


def _of_draws(reduce: Callable[[tuple[float, ...]], float], most: int | None, rewards: list[float]) -> dict[str, float]:
    """The expected value of a statistic of samples of a prompt: of ``most`` samples, or of as many as it has."""
    size = len(rewards) if most is None else min(most, len(rewards))
    return {
        "drawn with replacement": fmean(map(reduce, product(rewards, repeat=size))),
        "drawn without replacement": fmean(map(reduce, combinations(rewards, size))),
    }


def _solved(rewards: list[float]) -> dict[str, float]:
    return {"a reward above 0": float(max(rewards) > 0), "a reward of 1 or more": float(max(rewards) >= 1)}


#: Quantity -> its number for the rewards of one prompt, by every accepted reading.
PER_PROMPT: Mapping[str, Callable[[list[float]], dict[str, float]]] = {
    "sample_mean": _mean,
    "sample_deviation": _deviation,
    "best_sample": partial(_of_draws, max, None),
    "best_of_two": partial(_of_draws, max, 2),
    "worst_sample": partial(_of_draws, min, None),
    "worst_of_two": partial(_of_draws, min, 2),
    "voted_sample": partial(_of_draws, _voted, None),
    "voted_of_two": partial(_of_draws, _voted, 2),
    "solved_prompts": _solved,
}


def over_prompts(quantity: str, batch: Batch, _reads: frozenset[str], _over: str, _settings: Settings) -> Named:
    """The mean over prompts of a statistic of each prompt's rewards, by every accepted definition.

    Example:
        >>> from rl_sentinel.core.batch import batch_of
        >>> columns = {"reward": torch.tensor([1.0, 0.0, 0.0, 0.0]), "group": torch.tensor([4, 4, 5, 5])}
        >>> batch = batch_of(torch.ones(4, 1).bool(), **columns)
        >>> {n: x.item() for n, x in over_prompts("best_of_two", batch, frozenset(), "", {}).items()}
        {'drawn with replacement': 0.375, 'drawn without replacement': 0.5}
    """
    rewards: dict[int, list[float]] = {}
    for group, reward in zip(batch.group.tolist(), batch.reward.tolist(), strict=True):
        rewards.setdefault(group, []).append(reward)
    found = [PER_PROMPT[quantity](of_prompt) for of_prompt in rewards.values()]
    return {name: torch.tensor(fmean(one[name] for one in found), dtype=torch.float64) for name in found[0]}
