"""Advantages of algorithms by the formulas of their papers, in plain float64 sums, with every accepted reading."""

from collections.abc import Callable, Mapping
from itertools import product
from math import fsum, sqrt
from statistics import fmean

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import value_of
from rl_sentinel.formulas.corrections import CORRECTIONS
from rl_sentinel.formulas.kl_terms import KL_USES
from rl_sentinel.formulas.learning_rates import RATES
from rl_sentinel.formulas.path_quantities import LAID_OUT, ORDERED
from rl_sentinel.formulas.rewards import REWARDS
from rl_sentinel.formulas.staleness import FRESH
from rl_sentinel.formulas.temporal import EVERY_STEP, OPEN, RETURNS, TEMPORAL, Tokens

#: Name of a reading (an accepted interpretation of the formula) -> its value.
Named = dict[str, Tensor]

#: Name of a reading -> one number per row of the batch.
Rows = dict[str, list[float]]

#: Denominator of a variance -> the number by which it is less than the number of values.
_DENOMINATORS: Mapping[str, int] = {"n - 1": 1, "n": 0}

#: A sum of parts that is below this share of the largest part is only rounding in float32.
_NEAR = 1e-2

#: Numbers that implementations add to a deviation, tried if the boundary does not name one.
_EPSILONS = (0.0, 1e-9, 1e-8, 1e-6, 1e-5, 1e-4)


def known_advantages(boundary: Boundary) -> bool:
    """Whether there is a formula for the advantage estimator that the boundary claims."""
    name = value_of(boundary.claims.algorithm) or ""
    in_parts = name in IN_PARTS and "reward_parts" in boundary.reads
    return name in ADVANTAGES or in_parts or name in TEMPORAL


def advantages_of(boundary: Boundary, batch: Batch, settings: Settings) -> Named:
    """``[B]`` or ``[B, T]`` advantages of the claimed algorithm, by reading; each group needs two or more live rows."""
    name = value_of(boundary.claims.algorithm) or ""
    if boundary.claims.corrected_at_most:
        settings = {**settings, "sampler_ratio_at_most": boundary.claims.corrected_at_most.value}
    if name in TEMPORAL:
        readings = _with_claimed_steps(boundary, TEMPORAL[name](batch, settings))
        return readings | (_by_rows(batch, settings) if boundary.own and name == "reinforce++" else {})
    of_batch = name == "grpo" and value_of(boundary.claims.deviation_of) == "batch"
    compute = _grpo_by_batch if of_batch else {**ADVANTAGES, **IN_PARTS}[name]
    if name == "maxrl" and boundary.own and not _means_are_positive(batch):
        return {}  # MaxRL is defined for rewards of at least 0, and for groups with a reward above 0
    return _tensors({n: x for n, x in compute(batch, settings).items() if _agrees(n, boundary)})


def _agrees(reading: str, boundary: Boundary) -> bool:
    """Whether a reading, by its name, agrees with the claims about the division by a deviation."""
    standardized, denominator = value_of(boundary.claims.standardized), value_of(boundary.claims.deviation)
    if standardized is not None and standardized != ("by deviation" in reading):
        return False
    return not denominator or f"deviation ({denominator})" in reading or "deviation" not in reading


def _tensors(readings: Rows | Tokens) -> Named:
    return {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in readings.items()}


def _by_rows(batch: Batch, settings: Settings) -> Named:
    """``[B]`` outcomes, standardized over rows, as REINFORCE++ has them without a discount; empty with a discount."""
    readings = _over_batch(batch.reward.tolist(), batch, settings) if settings.get("gamma", 1) == 1 else {}
    return _tensors({name: x for name, x in readings.items() if "over rows" in name})


def has_returns(boundary: Boundary) -> bool:
    """Whether the boundary has an output ``returns`` and claims an algorithm that defines returns."""
    return "returns" in boundary.outputs and (value_of(boundary.claims.algorithm) or "") in RETURNS


def returns_of(boundary: Boundary, batch: Batch, settings: Settings) -> Named:
    """``[B, T]`` returns of the claimed algorithm, by reading."""
    return _with_claimed_steps(boundary, RETURNS[value_of(boundary.claims.algorithm) or ""](batch, settings))


def _with_claimed_steps(boundary: Boundary, readings: Tokens) -> Named:
    """The readings that agree with the boundary's claim about untrained tokens."""
    skips = value_of(boundary.claims.untrained) == "skipped"
    return _tensors({name: x for name, x in readings.items() if not (skips and name.endswith(EVERY_STEP))})


def spans_gaps(boundary: Boundary) -> bool:
    """Whether the formula defines how credit passes untrained tokens that lie between trained tokens."""
    name = value_of(boundary.claims.algorithm) or ""
    return name not in TEMPORAL or name in OPEN or value_of(boundary.claims.untrained) == "skipped"


def _epsilons(settings: Settings) -> tuple[float, ...]:
    epsilon = settings.get("epsilon")
    return (float(epsilon),) if isinstance(epsilon, int | float) else _EPSILONS


def _deviation(numbers: list[float], correction: int) -> float:
    """The standard deviation, computed from squared distances to the mean; exactly 0 if all values are equal."""
    if min(numbers) == max(numbers):
        return 0.0
    mean = fmean(numbers)
    return sqrt(fsum((x - mean) ** 2 for x in numbers) / (len(numbers) - correction))


def _groups(batch: Batch) -> list[list[int]]:
    """The live rows of each prompt; prompts without a live row are left out."""
    rows: dict[int, list[int]] = {}
    for b in _live(batch):
        rows.setdefault(int(batch.group[b]), []).append(b)
    return list(rows.values())


def _live(batch: Batch) -> list[int]:
    return [b for b, live in enumerate(batch.live.tolist()) if live]


def _centered(batch: Batch, weights: list[float] | None = None) -> list[float]:
    """Rewards minus the (weighted) mean over the live rows of their group; 0 for rows that are not live."""
    reward, centered = batch.reward.tolist(), [0.0] * batch.rows
    weights = weights or [1.0] * batch.rows
    for rows in _groups(batch):
        mean = sum(weights[b] * reward[b] for b in rows) / sum(weights[b] for b in rows)
        for b in rows:
            centered[b] = reward[b] - mean
    return centered


def _by_deviation(numbers: list[float], batch: Batch, settings: Settings) -> Rows:
    """Divide by the deviation of the rewards in each row's group, with every accepted use of an epsilon."""
    return _divided(numbers, batch.reward.tolist(), _groups(batch), settings)


def _divided(numbers: list[float], measured: list[float], populations: list[list[int]], settings: Settings) -> Rows:
    """Divide the value of each row by a standard deviation, with every accepted use of an epsilon.

    Args:
        numbers: one number per row.
        measured: the numbers whose standard deviation is taken, one per row.
        populations: disjoint lists of rows; a row is divided by the deviation over its list, or not if it is in none.
        settings: the epsilon; if it is missing, all usual epsilons are used.
    """
    readings = Rows()
    for (denominator, correction), epsilon in product(_DENOMINATORS.items(), _epsilons(settings)):
        deviations = {b: _deviation([measured[j] for j in rows], correction) for rows in populations for b in rows}
        divisors = {"": {b: d + epsilon for b, d in deviations.items()}}
        if epsilon:
            divisors[" within the root"] = {b: sqrt(d * d + epsilon) for b, d in deviations.items()}
            divisors[" at least"] = {b: max(d, epsilon) for b, d in deviations.items()}
        for how, divisor in divisors.items():
            quotients = [x / (divisor.get(b) or 1.0) for b, x in enumerate(numbers)]
            readings[f"by deviation ({denominator}) and {epsilon:g}{how}"] = quotients
    return readings


def _grpo(batch: Batch, settings: Settings) -> Rows:
    centered = _centered(batch)
    return {"centered": centered} | _by_deviation(centered, batch, settings)


def _grpo_by_batch(batch: Batch, settings: Settings) -> Rows:
    """Rewards centered in the group, divided by a deviation over all live rows: of the rewards, or centered rewards."""
    centered, live, readings = _centered(batch), _live(batch), Rows()
    for what, measured in {"rewards": batch.reward.tolist(), "centered rewards": centered}.items():
        for name, quotients in _divided(centered, measured, [live] if live else [], settings).items():
            readings[f"{name}, {what} of the batch"] = quotients
    return readings


def _rloo(batch: Batch, _settings: Settings) -> Rows:
    reward, advantage = batch.reward.tolist(), [0.0] * batch.rows
    for rows in _groups(batch):
        for b in rows if len(rows) > 1 else ():
            advantage[b] = reward[b] - fmean(reward[j] for j in rows if j != b)
    return {"against the others' mean": advantage}


def _opo(batch: Batch, _settings: Settings) -> Rows:
    lengths = {"tokens of the response": batch.length, "trained tokens": batch.mask.sum(1)}
    return {f"mean weighted by {n}": _centered(batch, x.double().tolist()) for n, x in lengths.items()}


def _best_of(batch: Batch, settings: Settings) -> Rows:
    """The best row of a group gets its margin over the second best; other rows get 0."""
    reward, margin = batch.reward.tolist(), [0.0] * batch.rows
    for rows in _groups(batch):
        if len(rows) > 1:
            second, best = sorted(reward[b] for b in rows)[-2:]
            for b in rows:
                margin[b] = best - second if reward[b] == best else 0.0
    return {"margin of the best": margin} | _by_deviation(margin, batch, settings)


def _means_are_positive(batch: Batch) -> bool:
    reward = batch.reward.tolist()
    return all(fmean(reward[b] for b in rows) > 0 for rows in _groups(batch))


def _gpg(batch: Batch, _settings: Settings) -> Rows:
    """Centered rewards, divided by the share of the live rows that are in groups with unequal rewards."""
    reward, groups = batch.reward.tolist(), _groups(batch)
    live = sum(len(rows) for rows in groups)
    unequal = sum(len(rows) for rows in groups if len({reward[b] for b in rows}) > 1)
    scaled = [x * live / max(1, unequal) for x in _centered(batch)]
    return {"scaled by rows / rows of groups with unequal rewards": scaled}


def _over_batch(numbers: list[float], batch: Batch, settings: Settings) -> Rows:
    """Standardize by mean and deviation of the live rows of the batch; 0 for rows that are not live.

    A row counts once, or once for each of its trained tokens.
    """
    readings, live = Rows(), batch.live.tolist()
    repeats = {"rows": [int(alive) for alive in live], "trained tokens": batch.mask.sum(1).tolist()}
    for who, counts in repeats.items() if any(live) else ():
        population = [x for x, count in zip(numbers, counts, strict=True) for _ in range(count)]
        mean = fmean(population)
        for (denominator, correction), epsilon in product(_DENOMINATORS.items(), _epsilons(settings)):
            deviation = _deviation(population, correction)
            divisors = {"beside": deviation + epsilon, "within the root": (deviation**2 + epsilon) ** 0.5}
            for how, divisor in divisors.items():
                quotients = [(x - mean) / (divisor or 1.0) for x in numbers]
                label = f"by deviation ({denominator}) over {who}, {epsilon:g} {how}"
                readings[label] = [x if alive else 0.0 for x, alive in zip(quotients, live, strict=True)]
    return readings


def _gdpo(batch: Batch, settings: Settings) -> Rows:
    """Standardize each reward part per group, add the parts (weights equal, or 1, 2, ...), standardize the sums.

    Empty if the sums differ by rounding only: the case then does not determine the advantage.
    """
    readings, live = Rows(), _live(batch)
    for epsilon in _epsilons(settings):
        parts = [_standardized_part(batch, part, epsilon) for part in batch.reward_parts.unbind(1)]
        largest = max((abs(x) for part in parts for x in part), default=0.0)
        for how, weights in {"equally": [1.0] * len(parts), "by rank": [1.0 + k for k in range(len(parts))]}.items():
            whole = [sum(w * part[b] for w, part in zip(weights, parts, strict=True)) for b in range(batch.rows)]
            if _deviation([whole[b] for b in live] or [0.0], 0) < _NEAR * largest:
                return Rows()
            readings |= {f"parts {how} and {epsilon:g}, {n}": x for n, x in _over_batch(whole, batch, settings).items()}
    return readings


def _standardized_part(batch: Batch, part: Tensor, epsilon: float) -> list[float]:
    """One reward part of each row ``[B]``, standardized over the rows of its group."""
    alone = with_columns(batch, reward=part)
    readings = _by_deviation(_centered(alone), alone, {"epsilon": epsilon})
    return readings[f"by deviation (n - 1) and {epsilon:g}"]


def _maxrl(batch: Batch, settings: Settings) -> Rows:
    """Rewards centered in the group, divided by the mean of the group plus an epsilon; by 1 if the divisor is 0."""
    centered, reward, mean = _centered(batch), batch.reward.tolist(), [0.0] * batch.rows
    for rows in _groups(batch):
        for b in rows:
            mean[b] = fmean(reward[j] for j in rows)
    return {
        f"by mean and {e:g}": [c / (m + e or 1.0) for c, m in zip(centered, mean, strict=True)]
        for e in (0.0, *_epsilons(settings))
    }


#: Algorithm -> advantage of each live row, by reading; 0 if rows are compared and there is no other row in the group.
ADVANTAGES: Mapping[str, Callable[[Batch, Settings], Rows]] = {
    "grpo": _grpo,
    "rloo": _rloo,
    "opo": _opo,
    "pass@k": _best_of,
    "gpg": _gpg,
    "reinforce++ baseline": lambda batch, settings: _over_batch(_centered(batch), batch, settings),
    "maxrl": _maxrl,
    "remax": lambda batch, _settings: {"against the greedy": (batch.reward - batch.reward_baseline).tolist()},
    "outcome": lambda batch, _settings: {"the outcome itself": batch.reward.tolist()},
}

#: Algorithm that reads the reward in parts -> its formula; only an adapter can pass the parts.
IN_PARTS: Mapping[str, Callable[[Batch, Settings], Rows]] = {"gdpo": _gdpo}

#: Algorithm with a single reading -> values per row or per token.
PLAIN: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    **REWARDS,
    **CORRECTIONS,
    **FRESH,
    **RATES,
    **KL_USES,
    **LAID_OUT,
    **ORDERED,
}
