"""Functions of ``signal`` that read a whole batch, beside their formulas."""

from math import nan
from statistics import fmean
from typing import Any, get_args

import torch
from draws import Draw
from formula_pairs import (
    MODES,
    Pair,
    bounded_pair,
    corrected_pair,
    on_live,
    on_mask,
    outcome_pair,
    over_time,
    ratio_to_sampler,
    shaped_pair,
    trained_numbers,
    versions,
)
from torch import Tensor

from rl_sentinel.core.boundary import Output
from rl_sentinel.formulas.aggregation import aggregated
from rl_sentinel.formulas.algorithms import IN_PARTS
from rl_sentinel.formulas.divergence_losses import covariance as covariance_formula
from rl_sentinel.formulas.kl_terms import STEERS
from rl_sentinel.formulas.measures import measured_batch
from rl_sentinel.formulas.metric_definitions import definitions
from rl_sentinel.formulas.metric_statistics import STATISTICS
from rl_sentinel.formulas.staleness import AGES
from rl_sentinel.formulas.value_losses import VALUE_LOSSES
from rl_sentinel.signal import (
    covariance,
    metrics,
    minibatches,
    normalization,
    penalty,
    reduce,
    staleness,
    value,
)
from rl_sentinel.signal.advantage import (
    gdpo,
    gpg,
    optimal_token_baseline,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
)
from rl_sentinel.signal.controller import Adaptive
from rl_sentinel.signal.correction import bounds, trust
from rl_sentinel.signal.segments import trained


def _policy(x: Draw) -> tuple[Tensor, Tensor]:
    """Log-probs of at most 0, and sums of squared probabilities that allow them."""
    own = -x.logprob.abs()
    return own, own.exp().square() + (1 - own.exp()).square() * torch.sigmoid(x.value)


def _token_baseline(x: Draw) -> Tensor:
    own, squared = _policy(x)
    return over_time(
        x,
        "optimal token baseline",
        "compared at the same of its trained tokens",
        logprob=own,
        pi_squared=squared,
    )


def aggregated_by(x: Draw, tokens: Tensor, mode: str, denominator: float) -> Tensor:
    """The formula of an aggregation whose denominator is given."""
    if mode == "token-sum":
        return aggregated(tokens, x.batch(), mode, {})["a sum"] * len(x.live) / denominator / len(x.live)
    (found,) = aggregated(tokens, x.batch(), mode, {"tokens": denominator, "rows": denominator}).values()
    return found


def denominator_of(x: Draw) -> float:
    """A denominator that no mode would count."""
    return float(trained(x.mask).sum()) + 1


def aggregation_of(mode: reduce.Mode, x: Draw) -> reduce.Aggregation:
    """An aggregation by :func:`denominator_of`."""
    by_prompt = minibatches.aggregation("prompt-mean", mask=x.mask, group=x.group).prompt_tokens
    return reduce.Aggregation(mode, denominator_of(x), by_prompt if mode == "prompt-mean" else None)


def _aggregated(mode: reduce.Mode) -> Pair:
    return Pair(
        lambda x: reduce.aggregate(x.value, mask=x.mask, aggregation=aggregation_of(mode, x)),
        lambda x: aggregated_by(x, x.value, mode, denominator_of(x)),
    )


def _value_loss(x: Draw) -> Tensor:
    by = reduce.Aggregation("token-sum", 3.0)
    return value.value_loss(x.value, x.old, x.token_reward, mask=x.mask, value_clip=0.4, aggregation=by)


def _gdpo(x: Draw) -> Tensor:
    parts = torch.stack([x.reward, x.baseline], 1)
    return gdpo.advantages(parts, group=x.group, live=x.live, weight=torch.tensor([1.0, 2.0]).double(), epsilon=1e-3)


def _gdpo_formula(x: Draw) -> Tensor:
    found = IN_PARTS["gdpo"](x.batch(reward_parts=torch.stack([x.reward, x.baseline], 1)), {"epsilon": 1e-3})
    reading = "parts by rank and 0.001, by deviation (n - 1) over rows, 0.001 beside"
    return on_live(x, found.get(reading, torch.full(x.live.shape, nan)))


def _token_baseline_call(x: Draw) -> Tensor:
    own, squared = _policy(x)
    return optimal_token_baseline.advantages(x.token_reward, own, squared, mask=x.mask, group=x.group)


def _stacked(found: Any) -> Tensor:
    return torch.stack([x for x in found if isinstance(x, Tensor)])


def _statistics(numbers: Tensor) -> list[float]:
    """Mean, deviation, least and most; NaN where there is no number."""
    if not len(numbers):
        return [nan] * 4
    return [float(next(iter(STATISTICS[n](numbers).values()))) for n in ("mean", "std", "min", "max")]


def _metric(x: Draw, quantity: str, reading: str, reads: str, **settings: float) -> float:
    found = definitions(Output("", "", quantity, over="live"), x.batch(), frozenset(reads.split()), settings)
    return float(found.get(reading, nan))


def _measure(x: Draw, quantity: str, reads: str, reading: str = "") -> float:
    found = measured_batch(quantity, x.batch(), frozenset(reads.split()), "live", {}) if x.live.any() else {}
    return float(found.get(reading, nan))


def _share(facts: list[bool]) -> float:
    return fmean(facts) if facts else 0.0


def _clip_fractions(x: Draw) -> list[float]:
    bound = {"clip_low": 0.3, "clip_high": 0.5}
    reads = "logprob old_logprob advantage"
    return [
        _metric(x, "clip_fraction", "mean of where clipping binds over trained tokens", reads, **bound),
        _metric(x, "sequences_clipped", "mean of rows where clipping binds over live rows", reads, **bound),
    ]


def _mean_kls(x: Draw) -> list[float]:
    reading = "mean of {} of logprob against ref_logprob over trained tokens"
    return [_metric(x, f"kl.{n}", reading.format(n), "logprob ref_logprob") for n in ("k1", "k3")]


def _adaptive(x: Draw) -> Tensor:
    apart = [a for row in trained_numbers(x.logprob - x.ref, x.mask) for a in row]
    steered = Adaptive(0.3, target=0.2, horizon=40.0).after(fmean(apart) if apart else 0.0, samples=int(x.live.sum()))
    return torch.tensor(steered.coefficient, dtype=torch.float64)


def _largest(x: Draw) -> Tensor:
    size = x.value.round(decimals=1)
    every = size[x.mask]
    count = max(1, int(0.4 * len(every)))
    return on_mask(x, torch.stack([(every > n).sum() < count for n in size.flatten()]).view(size.shape))


def _kept_second_moment(x: Draw) -> Tensor:
    return trust.second_moment_kept(x.logprob, x.old, mask=x.mask, threshold=0.8)


#: Functions of the whole batch: compared on 500 batches.
WHOLE: dict[str, Pair] = {
    "advantage.gdpo.advantages": Pair(_gdpo, _gdpo_formula),
    "advantage.gpg.advantages": outcome_pair(
        gpg.advantages, "gpg", "scaled by rows / rows of groups with unequal rewards"
    ),
    "advantage.optimal_token_baseline.advantages": Pair(_token_baseline_call, _token_baseline),
    "advantage.reinforce_plus_plus.advantages": Pair(
        lambda x: reinforce_plus_plus.advantages(x.token_reward, mask=x.mask, discount=0.9, epsilon=1e-3),
        lambda x: over_time(x, "reinforce++", "whitened (n - 1), beside"),
    ),
    "advantage.reinforce_plus_plus_baseline.advantages": outcome_pair(
        reinforce_plus_plus_baseline.advantages,
        "reinforce++ baseline",
        "by deviation (n - 1) over rows, 0.001 beside",
        epsilon=1e-3,
    ),
    "controller.Adaptive": Pair(
        _adaptive, lambda x: STEERS["k1 steers"](x.batch(), {"coefficient": 0.3, "target": 0.2, "horizon": 40.0})
    ),
    "correction.bounds.self_normalized": bounded_pair(bounds.self_normalized, "self normalized"),
    "correction.trust.second_moment_kept": corrected_pair(_kept_second_moment, "second moment kept", threshold=0.8),
    "correction.trust.rejected_fraction": Pair(
        lambda x: trust.rejected_fraction(x.scored, live=x.live, denominator=denominator_of(x)),
        lambda x: float((x.live & ~x.scored).sum()) / denominator_of(x),
    ),
    "covariance.covariances": Pair(
        lambda x: covariance.covariances(x.logprob, x.advantage, mask=x.mask),
        lambda x: on_mask(x, covariance_formula(x.batch())),
    ),
    "covariance.largest": Pair(
        lambda x: covariance.largest(x.value.round(decimals=1), mask=x.mask, share=0.4), _largest
    ),
    "metrics.statistics": Pair(
        lambda x: _stacked(metrics.statistics(x.value, mask=x.mask)), lambda x: _statistics(x.value[x.mask])
    ),
    "metrics.statistics, rows": Pair(
        lambda x: _stacked(metrics.statistics(x.reward, mask=x.live)), lambda x: _statistics(x.reward[x.live])
    ),
    "metrics.share": Pair(
        lambda x: metrics.share(x.value > 0, mask=x.mask), lambda x: _share((x.value[x.mask] > 0).tolist())
    ),
    "metrics.share, rows": Pair(
        lambda x: metrics.share(x.scored, mask=x.live), lambda x: _share(x.scored[x.live].tolist())
    ),
    "metrics.clip_fraction": Pair(
        lambda x: _stacked(
            metrics.clip_fraction(x.logprob, x.old, x.advantage, mask=x.mask, clip_low=0.3, clip_high=0.5)
        ),
        _clip_fractions,
    ),
    "metrics.mean_kl": Pair(lambda x: _stacked(metrics.mean_kl(x.logprob, x.ref, mask=x.mask)), _mean_kls),
    "metrics.effective_sample_size": Pair(
        lambda x: metrics.effective_sample_size(ratio_to_sampler(x), mask=x.mask),
        lambda x: _measure(
            x,
            "effective_sample_size",
            "logprob rollout_logprob",
            "ratios of logprob to rollout_logprob over trained tokens",
        ),
    ),
    "metrics.dead_group_fraction": Pair(
        lambda x: metrics.dead_group_fraction(x.reward, group=x.group, live=x.live),
        lambda x: _measure(x, "dead_group_fraction", "reward group", "prompts of live rows"),
    ),
    "metrics.explained_variance": Pair(
        lambda x: metrics.explained_variance(x.value, x.token_reward, mask=x.mask),
        lambda x: _measure(x, "explained_variance", "value returns", "of a variance, 0 where it is not defined"),
    ),
    "penalty.as_loss": Pair(
        lambda x: penalty.as_loss(x.value, mask=x.mask, coefficient=0.3, aggregation=aggregation_of("token-mean", x)),
        lambda x: aggregated_by(x, 0.3 * x.value, "token-mean", denominator_of(x)),
    ),
    "staleness.staleness": Pair(
        lambda x: _stacked(staleness.staleness(versions(x), mask=x.mask, current=7)),
        lambda x: [float(f(x.batch(version=versions(x)), {"current": 7})) for f in AGES.values()],
    ),
    "value.value_loss": Pair(
        _value_loss,
        lambda x: aggregated_by(
            x, VALUE_LOSSES["clipped value"](x.batch(), {"value_clip": 0.4})["half the square"], "token-sum", 3.0
        ),
    ),
}
WHOLE |= {f"reduce.aggregate, {mode}": _aggregated(mode) for mode in MODES}


def _normalized(**choices: Any) -> Pair:
    by = normalization.Normalization(**choices)
    return shaped_pair(
        lambda x: normalization.normalized(x.reward, group=x.group, live=x.live, by=by), "normalized", **choices
    )


OVER: tuple[normalization.Over, ...] = get_args(normalization.Over)
WHOLE |= {
    f"normalization.normalized, {mean} {deviation} {left} {biased}": _normalized(
        mean=mean, deviation=deviation, leave_one_out=left, biased=biased, epsilon=1e-3
    )
    for mean in OVER
    for deviation in OVER
    for left in (False, True)
    for biased in (False, True)
    if not (left and mean == "none")
}
