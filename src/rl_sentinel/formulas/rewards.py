"""Formulas of reward shaping and filtering before advantages, row by row in plain floats."""

from collections.abc import Callable, Mapping
from math import sqrt

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of


def _of_rows(batch: Batch, value: Callable[[int], float]) -> Tensor:
    """``[B]``: the value of each live row, and 0 for rows that are not live."""
    live = batch.live.tolist()
    return torch.tensor([value(b) if live[b] else 0.0 for b in range(batch.rows)], dtype=torch.float64)


def _rescaled(batch: Batch, settings: Settings) -> Tensor:
    bias, scale = number_of(settings, "bias"), number_of(settings, "scale")
    return _of_rows(batch, lambda b: (float(batch.reward[b]) + bias) * scale)


def _clipped(batch: Batch, settings: Settings) -> Tensor:
    ordered = (number_of(settings, "least"), number_of(settings, "most"))
    return _of_rows(batch, lambda b: sorted((float(batch.reward[b]), *ordered))[1])


def _suppressed(batch: Batch, _settings: Settings) -> Tensor:
    return _of_rows(batch, lambda b: float(batch.reward[b]) if bool(batch.scored[b]) else 0.0)


def overlong_penalty(length: int, settings: Settings) -> float:
    """The length penalty of a response with this number of tokens, at most 0; arXiv 2503.14476, equation 13."""
    limit, buffer = number_of(settings, "limit"), number_of(settings, "buffer")
    if length <= limit - buffer:
        return 0.0
    return -number_of(settings, "factor") * (1.0 if length > limit else (length - limit + buffer) / buffer)


def _overlong(batch: Batch, settings: Settings) -> Tensor:
    return _of_rows(batch, lambda b: overlong_penalty(int(batch.length[b]), settings))


def _population(batch: Batch, b: int, over: object) -> list[int]:
    """The rows over which a statistic of row ``b`` is computed: the live rows of the batch, or of its group."""
    live, group = batch.live.tolist(), batch.group.tolist()
    return [j for j in range(batch.rows) if live[j] and (over == "batch" or group[j] == group[b])]


def _normalized(batch: Batch, settings: Settings) -> Tensor:
    suppress = bool(settings.get("suppress"))
    reward = _suppressed(batch, settings).tolist() if suppress else batch.reward.double().tolist()

    def mean(b: int, *, without: bool) -> float:
        rows = [] if settings["mean"] == "none" else _population(batch, b, settings["mean"])
        rows = [j for j in rows if not (without and j == b)]
        if not rows:
            return reward[b] if settings["mean"] != "none" else 0.0
        return float(sum(reward[j] for j in rows) / len(rows))

    def value(b: int) -> float:
        relative = reward[b] - mean(b, without=bool(settings["leave_one_out"]))
        if settings["deviation"] == "none":
            return float(relative)
        rows = _population(batch, b, settings["deviation"])
        rest = [reward[j] - mean(j, without=False) for j in rows]
        squares = sum((x - sum(rest) / len(rest)) ** 2 for x in rest)
        spread = sqrt(squares / max(1, len(rest) - (0 if settings["biased"] else 1)))
        return float(relative / (spread + number_of(settings, "epsilon"))) if spread > ROUNDING else 0.0

    return _of_rows(batch, value)


def _informative(batch: Batch, _settings: Settings) -> Tensor:
    """1 for each live row of a prompt whose rewards are not all equal, 0 for others.

    Source:
        DAPO (arXiv 2503.14476), dynamic sampling.
    """
    rewards = [set(batch.reward[batch.group == label].tolist()) for label in batch.group]
    return _of_rows(batch, lambda b: float(len(rewards[b]) > 1))


def _informative_outcomes(batch: Batch, _settings: Settings) -> Tensor:
    """1 for each live row of a prompt whose trajectories do not all end with the same reward, 0 for others."""
    rewards = [set(batch.reward[(batch.group == label) & batch.last_step].tolist()) for label in batch.group]
    return _of_rows(batch, lambda b: float(len(rewards[b]) > 1))


def _not_all_equal(batch: Batch, _settings: Settings) -> Tensor:
    """0 for each row of a prompt with several live responses that all have the same reward, 1 for other live rows."""
    rewards = [batch.reward[(batch.group == label) & batch.live].tolist() for label in batch.group]
    return _of_rows(batch, lambda b: float(len(rewards[b]) < MANY or len(set(rewards[b])) > 1))


#: Number of responses from which their rewards can be compared.
MANY = 2

#: A deviation below this counts as 0, in reward units.
ROUNDING = 1e-12

#: Algorithm -> one number per row.
REWARDS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "rescaled": _rescaled,
    "clipped": _clipped,
    "suppressed": _suppressed,
    "overlong penalty": _overlong,
    "normalized": _normalized,
    "prompts with unequal rewards": _informative,
    "prompts with unequal outcomes of trajectories": _informative_outcomes,
    "prompts but those of equal live rewards": _not_all_equal,
}
