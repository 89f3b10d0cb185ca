"""Advantages of algorithms by their papers' formulas, in plain float64 sums, by every accepted reading."""

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

#: Denominator -> standard deviation of a list of at least two numbers.
_DEVIATIONS: Mapping[str, Callable[[list[float]], float]] = {
    "n - 1": lambda numbers: _deviation(numbers, 1),
    "n": lambda numbers: _deviation(numbers, 0),
}

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
    name, standardized = value_of(boundary.claims.algorithm) or "", value_of(boundary.claims.standardized)
    if boundary.claims.corrected_at_most:
        settings = {**settings, "sampler_ratio_at_most": boundary.claims.corrected_at_most.value}
    if name in TEMPORAL:
        found = _with_claimed_steps(boundary, TEMPORAL[name](batch, settings))
        return found | (_by_rows(batch, settings) if boundary.own and name == "reinforce++" else {})
    of_batch = name == "grpo" and value_of(boundary.claims.deviation_of) == "batch"
    compute = _grpo_by_batch if of_batch else {**ADVANTAGES, **IN_PARTS}[name]
    if name == "maxrl" and boundary.own and not _means_are_positive(batch):
        return {}  # MaxRL is defined for rewards of at least 0, and for groups with a reward above 0
    readings = compute(batch, settings)
    chosen = {n: x for n, x in readings.items() if standardized is None or standardized == ("by deviation" in n)}
    counted = value_of(boundary.claims.deviation)
    chosen = {n: x for n, x in chosen.items() if not counted or f"deviation ({counted})" in n or "deviation" not in n}
    return {n: torch.tensor(x, dtype=torch.float64) for n, x in chosen.items()}


def _by_rows(batch: Batch, settings: Settings) -> Named:
    """``[B]`` outcomes standardized over rows: REINFORCE++ without a discount, where tokens of a row have one value."""
    readings = _over_batch(batch.reward.tolist(), batch, settings) if settings.get("gamma", 1) == 1 else {}
    return {n: torch.tensor(x, dtype=torch.float64) for n, x in readings.items() if "over rows" in n}


def has_returns(boundary: Boundary) -> bool:
    """Whether the boundary has an output ``returns`` and claims an algorithm that defines returns."""
    return "returns" in boundary.outputs and (value_of(boundary.claims.algorithm) or "") in RETURNS


def returns_of(boundary: Boundary, batch: Batch, settings: Settings) -> Named:
    """``[B, T]`` returns of the claimed algorithm, by reading."""
    return _with_claimed_steps(boundary, RETURNS[value_of(boundary.claims.algorithm) or ""](batch, settings))


def _with_claimed_steps(boundary: Boundary, found: Tokens) -> Named:
    """The readings that agree with the boundary's claim about untrained tokens."""
    skips = value_of(boundary.claims.untrained) == "skipped"
    left = {n: x for n, x in found.items() if not (skips and n.endswith(EVERY_STEP))}
    return {n: torch.tensor(x, dtype=torch.float64) for n, x in left.items()}


def spans_gaps(boundary: Boundary) -> bool:
    """Whether the formula defines credit across untrained tokens between trained ones."""
    name = value_of(boundary.claims.algorithm) or ""
    return name not in TEMPORAL or name in OPEN or value_of(boundary.claims.untrained) == "skipped"


def _epsilons(settings: Settings) -> tuple[float, ...]:
    own = settings.get("epsilon")
    return (float(own),) if isinstance(own, int | float) else _EPSILONS


def _deviation(numbers: list[float], correction: int) -> float:
    """The deviation, from the sum of squared distances to the mean; exactly 0 if all values are equal."""
    if min(numbers) == max(numbers):
        return 0.0
    mean = fmean(numbers)
    return sqrt(fsum((x - mean) ** 2 for x in numbers) / (len(numbers) - correction))


def _groups(batch: Batch) -> list[list[int]]:
    """The live rows of each prompt with a live row."""
    rows: dict[int, list[int]] = {}
    for b, (label, live) in enumerate(zip(batch.group.tolist(), batch.live.tolist(), strict=True)):
        if live:
            rows.setdefault(label, []).append(b)
    return list(rows.values())


def _centered(batch: Batch, weights: list[float] | None = None) -> list[float]:
    reward, found = batch.reward.tolist(), [0.0] * batch.rows
    share = weights or [1.0] * batch.rows
    for rows in _groups(batch):
        mean = sum(share[b] * reward[b] for b in rows) / sum(share[b] for b in rows)
        for b in rows:
            found[b] = reward[b] - mean
    return found


def _by_deviation(found: list[float], batch: Batch, settings: Settings) -> Rows:
    """Divide by the deviation of the rewards in each row's group; a deviation of 0 leaves the numbers unchanged."""
    return _divided(found, batch.reward.tolist(), _groups(batch), settings)


def _divided(found: list[float], numbers: list[float], populations: list[list[int]], settings: Settings) -> Rows:
    """Divide each row by the deviation of ``numbers`` over its population, with every accepted use of an epsilon."""
    readings = Rows()
    for (name, deviation), epsilon in product(_DEVIATIONS.items(), _epsilons(settings)):
        spreads = [1.0] * len(found)
        for rows in populations:
            for b in rows:
                spreads[b] = deviation([numbers[j] for j in rows])
        forms = {
            "": [s + epsilon for s in spreads],
            " within the root": [sqrt(s * s + epsilon) for s in spreads],
            " at least": [max(s, epsilon) for s in spreads],
        }
        for how, scale in forms.items() if epsilon else [("", spreads)]:
            shares = [x / (s or 1.0) for x, s in zip(found, scale, strict=True)]
            readings[f"by deviation ({name}) and {epsilon:g}{how}"] = shares
    return readings


def _grpo(batch: Batch, settings: Settings) -> Rows:
    centered = _centered(batch)
    return {"centered": centered} | _by_deviation(centered, batch, settings)


def _grpo_by_batch(batch: Batch, settings: Settings) -> Rows:
    """Center in the group, divide by the deviation of all live rows: of their rewards, or of their centered rewards."""
    centered, readings = _centered(batch), Rows()
    live = [b for b, alive in enumerate(batch.live.tolist()) if alive]
    for what, numbers in {"rewards": batch.reward.tolist(), "centered rewards": centered}.items():
        for name, shares in _divided(centered, numbers, [live] if live else [], settings).items():
            readings[f"{name}, {what} of the batch"] = shares
    return readings


def _rloo(batch: Batch, _settings: Settings) -> Rows:
    reward, found = batch.reward.tolist(), [0.0] * batch.rows
    for rows in _groups(batch):
        for b in rows if len(rows) > 1 else ():
            found[b] = reward[b] - fmean(reward[j] for j in rows if j != b)
    return {"against the others' mean": found}


def _opo(batch: Batch, _settings: Settings) -> Rows:
    lengths = {"tokens of the response": batch.length, "trained tokens": batch.mask.sum(1)}
    return {f"mean weighted by {n}": _centered(batch, x.double().tolist()) for n, x in lengths.items()}


def _best_of(batch: Batch, settings: Settings) -> Rows:
    reward, found = batch.reward.tolist(), [0.0] * batch.rows
    for rows in (group for group in _groups(batch) if len(group) > 1):
        second, best = sorted(reward[b] for b in rows)[-2:]
        for b in rows:
            found[b] = best - second if reward[b] == best else 0.0
    return {"margin of the best": found} | _by_deviation(found, batch, settings)


def _means_are_positive(batch: Batch) -> bool:
    reward = batch.reward.tolist()
    return all(fmean(reward[b] for b in rows) > 0 for rows in _groups(batch))


def _gpg(batch: Batch, _settings: Settings) -> Rows:
    centered, reward = _centered(batch), batch.reward.tolist()
    live = sum(len(rows) for rows in _groups(batch))
    unequal = sum(len(rows) for rows in _groups(batch) if len({reward[b] for b in rows}) > 1)
    return {"scaled by rows / rows of groups with unequal rewards": [x * live / max(1, unequal) for x in centered]}


def _reinforce_plus_plus_baseline(batch: Batch, settings: Settings) -> Rows:
    return _over_batch(_centered(batch), batch, settings)


def _over_batch(found: list[float], batch: Batch, settings: Settings) -> Rows:
    """Standardize by mean and deviation of the live rows of the batch; 0 for rows that are not live."""
    readings, live = Rows(), batch.live.tolist()
    repeats = {"rows": [int(alive) for alive in live], "trained tokens": batch.mask.sum(1).tolist()}
    for who, counts in repeats.items() if any(live) else ():
        every = [x for x, n in zip(found, counts, strict=True) for _ in range(n)]
        mean = fmean(every)
        for (name, deviation), epsilon in product(_DEVIATIONS.items(), _epsilons(settings)):
            spread = deviation(every)
            forms = {"beside": spread + epsilon, "within the root": (spread**2 + epsilon) ** 0.5}
            for how, scale in forms.items():
                label = f"by deviation ({name}) over {who}, {epsilon:g} {how}"
                readings[label] = [(x - mean) / (scale or 1.0) if k else 0.0 for x, k in zip(found, live, strict=True)]
    return readings


def _gdpo(batch: Batch, settings: Settings) -> Rows:
    """Standardize each reward part per group, add the parts with equal weights or 1, 2, ..., standardize the sums."""
    readings = Rows()
    for epsilon in _epsilons(settings):
        parts = []
        for part in batch.reward_parts.unbind(1):
            alone = with_columns(batch, reward=part)
            parts.append(
                _by_deviation(_centered(alone), alone, {"epsilon": epsilon})[f"by deviation (n - 1) and {epsilon:g}"]
            )
        for how, weights in {"equally": [1.0] * len(parts), "by rank": [1.0 + k for k in range(len(parts))]}.items():
            whole = [sum(w * x for w, x in zip(weights, row, strict=True)) for row in zip(*parts, strict=True)]
            alive = [x for x, live in zip(whole, batch.live.tolist(), strict=True) if live] or [0.0]
            if _deviation(alive, 0) < _NEAR * max(map(abs, (x for part in parts for x in part)), default=0.0):
                return Rows()
            readings |= {f"parts {how} and {epsilon:g}, {n}": x for n, x in _over_batch(whole, batch, settings).items()}
    return readings


def _maxrl(batch: Batch, settings: Settings) -> Rows:
    """Center, then divide by the mean of the group; a case with mean 0 is not compared."""
    centered, reward = _centered(batch), batch.reward.tolist()
    mean = [0.0] * batch.rows
    for rows in _groups(batch):
        for b in rows:
            mean[b] = fmean(reward[j] for j in rows)
    return {
        f"by mean and {e:g}": [c / (m + e or 1.0) for c, m in zip(centered, mean, strict=True)]
        for e in (0.0, *_epsilons(settings))
    }


#: Algorithm -> advantage of each row, by reading; 0 if the row is not live, or if it has no row to be compared with.
ADVANTAGES: Mapping[str, Callable[[Batch, Settings], Rows]] = {
    "grpo": _grpo,
    "rloo": _rloo,
    "opo": _opo,
    "pass@k": _best_of,
    "gpg": _gpg,
    "reinforce++ baseline": _reinforce_plus_plus_baseline,
    "maxrl": _maxrl,
    "remax": lambda batch, _settings: {"against the greedy": (batch.reward - batch.reward_baseline).tolist()},
    "outcome": lambda batch, _settings: {"the outcome itself": batch.reward.tolist()},
}

#: The same for algorithms that read the reward in parts; only an adapter can pass the parts.
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
