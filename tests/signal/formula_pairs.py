"""Each function of ``signal`` beside its formula of ``formulas``, or beside a plain expression where there is none."""

from collections.abc import Callable
from math import nan
from statistics import fmean, pstdev
from typing import Any, NamedTuple, get_args

import torch
from draws import Draw
from torch import Tensor

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.algorithms import ADVANTAGES
from rl_sentinel.formulas.corrections import CORRECTIONS
from rl_sentinel.formulas.kl_terms import KL_LOSSES, KL_USES, importance_weighted
from rl_sentinel.formulas.rewards import REWARDS, overlong_penalty
from rl_sentinel.formulas.staleness import FRESH
from rl_sentinel.formulas.temporal import RETURNS, TEMPORAL
from rl_sentinel.formulas.token_values import VALUES
from rl_sentinel.signal import (
    align,
    groups,
    kl,
    penalty,
    reduce,
    reward,
    scan,
    staleness,
)
from rl_sentinel.signal.advantage import (
    gae,
    grpo,
    maxrl,
    opo,
    passk,
    reinforce,
    remax,
    rloo,
    turn_level_gae,
)
from rl_sentinel.signal.correction import bounds, rejection, trust, weights


class Pair(NamedTuple):
    """A function of ``signal`` and its expected value, both of one draw; an expected NaN is not compared."""

    call: Callable[[Draw], Tensor]
    expected: Callable[[Draw], Any]


MODES: tuple[reduce.Mode, ...] = get_args(reduce.Mode)
TIME: Settings = {"gamma": 0.9, "lam": 0.8}


def on_live(x: Draw, numbers: Any) -> Tensor:
    """``[B]`` numbers, and 0 at rows that are not live."""
    return torch.where(x.live, torch.as_tensor(numbers, dtype=torch.float64), 0.0)


def on_mask(x: Draw, numbers: Any) -> Tensor:
    """``[B, T]`` numbers, and 0 at tokens that are not trained."""
    return torch.where(x.mask, torch.as_tensor(numbers, dtype=torch.float64), 0.0)


def trained_numbers(values: Tensor, mask: Tensor) -> list[list[float]]:
    """The numbers at the trained tokens of each row."""
    return [[v for v, m in zip(*row, strict=True) if m] for row in zip(values.tolist(), mask.tolist(), strict=True)]


def _siblings(x: Draw) -> list[list[float]]:
    """For each row the rewards of the live rows of its prompt."""
    found: dict[int, list[float]] = {}
    for group, number, live in zip(x.group.tolist(), x.reward.tolist(), x.live.tolist(), strict=True):
        found.setdefault(group, []).extend([number] * live)
    return [found[group] for group in x.group.tolist()]


def _places(x: Draw) -> list[int]:
    number = {group: place for place, group in enumerate(sorted(set(x.group.tolist())))}
    return [number[group] for group in x.group.tolist()]


def _spread(rewards: list[float]) -> float:
    """Deviation of the sample; 0 of fewer than two numbers, and of equal ones."""
    return pstdev(rewards) * (len(rewards) / (len(rewards) - 1)) ** 0.5 if len(set(rewards)) > 1 else 0.0


def outcome_pair(function: Callable[..., Tensor], algorithm: str, reading: str, **settings: float) -> Pair:
    return Pair(
        lambda x: function(x.reward, group=x.group, live=x.live, **settings),
        lambda x: on_live(x, ADVANTAGES[algorithm](x.batch(), settings).get(reading, [0.0] * len(x.live))),
    )


def over_time(x: Draw, algorithm: str, reading: str, **changed: Any) -> Tensor:
    batch = x.batch(reward=torch.zeros(len(x.live)), **changed)
    found = TEMPORAL[algorithm](batch, {**TIME, "epsilon": 1e-3}).get(reading)
    return on_mask(x, torch.full(x.mask.shape, nan) if found is None else found)


def _turn_values(x: Draw) -> Tensor:
    """Returns of turns are the advantage of the turn above its value."""
    batch = x.batch(reward=torch.zeros(len(x.live)))
    (returns,) = RETURNS["turn-level gae"](batch, TIME).values()
    advantages = TEMPORAL["turn-level gae"](batch, TIME)["as they are"]
    return on_mask(x, torch.tensor(returns, dtype=torch.float64) - torch.tensor(advantages, dtype=torch.float64))


def shaped_pair(function: Callable[[Draw], Tensor], name: str, **settings: Any) -> Pair:
    return Pair(function, lambda x: REWARDS[name](x.batch(), settings))


def corrected_pair(function: Callable[[Draw], Tensor], name: str, **settings: Any) -> Pair:
    return Pair(function, lambda x: CORRECTIONS[name](x.batch(), settings))


def _compared(function: Callable[..., Tensor], name: str, **settings: Any) -> Pair:
    """A function of the policy and the policy that sampled."""
    return corrected_pair(lambda x: function(x.logprob, x.rollout, mask=x.mask, **settings), name, **settings)


def ratio_to_sampler(x: Draw) -> Tensor:
    return (x.logprob - x.rollout).exp()


def bounded_pair(function: Callable[..., Tensor], name: str, **settings: float) -> Pair:
    return corrected_pair(
        lambda x: function(ratio_to_sampler(x), mask=x.mask, **settings), name, level="token", **settings
    )


def _kl(kind: str) -> Pair:
    function = getattr(kl, kind)
    return Pair(
        lambda x: function(x.logprob, x.ref, mask=x.mask),
        lambda x: on_mask(x, next(iter(KL_LOSSES[f"{kind} as a loss"](x.batch(), {"coefficient": 1.0}).values()))),
    )


#: Functions whose rows, or groups of rows, do not influence each other: compared on 500 groups in one batch.
APART: dict[str, Pair] = {
    "groups.places": Pair(lambda x: groups.places(x.group), _places),
    "groups.group_sums": Pair(
        lambda x: groups.group_sums(x.reward, group=x.group, live=x.live), lambda x: [sum(r) for r in _siblings(x)]
    ),
    "groups.group_counts": Pair(
        lambda x: groups.group_counts(group=x.group, live=x.live), lambda x: [len(r) for r in _siblings(x)]
    ),
    "groups.group_maxima": Pair(
        lambda x: groups.group_maxima(x.reward, group=x.group, live=x.live),
        lambda x: [max(r, default=-torch.inf) for r in _siblings(x)],
    ),
    "groups.centered": Pair(
        lambda x: groups.centered(x.reward, group=x.group, live=x.live, weight=x.length.double()),
        lambda x: ADVANTAGES["opo"](x.batch(), {})["mean weighted by tokens of the response"],
    ),
    "groups.moments": Pair(
        lambda x: torch.stack(groups.moments(x.reward, group=x.group, live=x.live)),
        lambda x: [ADVANTAGES["grpo"](x.batch(), {})["centered"], [_spread(r) for r in _siblings(x)]],
    ),
    "groups.deviations": Pair(
        lambda x: groups.deviations(x.reward, group=x.group, live=x.live, biased=True),
        lambda x: [pstdev(r) if r else 0.0 for r in _siblings(x)],
    ),
    "advantage.grpo.advantages": outcome_pair(
        lambda *row, **given: grpo.advantages(*row, standardize=True, **given),
        "grpo",
        "by deviation (n - 1) and 0.001",
        epsilon=1e-3,
    ),
    "advantage.grpo.advantages, centered": outcome_pair(
        lambda *row, **given: grpo.advantages(*row, standardize=False, **given), "grpo", "centered", epsilon=1e-3
    ),
    "advantage.rloo.advantages": outcome_pair(rloo.advantages, "rloo", "against the others' mean"),
    "advantage.passk.advantages": outcome_pair(passk.advantages, "pass@k", "margin of the best"),
    "advantage.opo.advantages": Pair(
        lambda x: opo.advantages(x.reward, group=x.group, live=x.live, length=x.length),
        lambda x: ADVANTAGES["opo"](x.batch(), {})["mean weighted by tokens of the response"],
    ),
    "advantage.maxrl.advantages": Pair(
        lambda x: maxrl.advantages(x.reward.abs(), group=x.group, live=x.live),
        lambda x: ADVANTAGES["maxrl"](x.batch(reward=x.reward.abs()), {})["by mean and 0"],
    ),
    "advantage.reinforce.advantages": Pair(
        lambda x: reinforce.advantages(x.reward, live=x.live),
        lambda x: on_live(x, ADVANTAGES["outcome"](x.batch(), {})["the outcome itself"]),
    ),
    "advantage.remax.advantages": Pair(
        lambda x: remax.advantages(x.reward, x.baseline, live=x.live),
        lambda x: on_live(x, ADVANTAGES["remax"](x.batch(), {})["against the greedy"]),
    ),
    "advantage.gae.advantages": Pair(
        lambda x: gae.advantages(x.token_reward, x.value, mask=x.mask, discount=0.9, decay=0.8),
        lambda x: over_time(x, "gae", "as they are"),
    ),
    "advantage.turn_level_gae.advantages": Pair(
        lambda x: turn_level_gae.advantages(x.token_reward, x.value, mask=x.mask, turn=x.turn, discount=0.9, decay=0.8),
        lambda x: over_time(x, "turn-level gae", "as they are"),
    ),
    "advantage.turn_level_gae.turn_values": Pair(
        lambda x: turn_level_gae.turn_values(x.value, mask=x.mask, turn=x.turn), _turn_values
    ),
    "reward.rescaled": shaped_pair(
        lambda x: reward.rescaled(x.reward, live=x.live, bias=0.7, scale=1.3), "rescaled", bias=0.7, scale=1.3
    ),
    "reward.clipped": shaped_pair(
        lambda x: reward.clipped(x.reward, live=x.live, least=-0.5, most=1.1), "clipped", least=-0.5, most=1.1
    ),
    "reward.suppressed": shaped_pair(lambda x: reward.suppressed(x.reward, live=x.live, scored=x.scored), "suppressed"),
    "reward.overlong_penalty": Pair(
        lambda x: reward.overlong_penalty(x.length, limit=4, buffer=3, factor=0.7),
        lambda x: [overlong_penalty(n, {"limit": 4, "buffer": 3, "factor": 0.7}) for n in x.length.tolist()],
    ),
    "reduce.selected": Pair(lambda x: reduce.selected(x.value, mask=x.mask), lambda x: on_mask(x, x.value)),
    "reduce.row_sums": Pair(
        lambda x: reduce.row_sums(x.value, mask=x.mask), lambda x: [sum(r) for r in trained_numbers(x.value, x.mask)]
    ),
    "reduce.row_means": Pair(
        lambda x: reduce.row_means(x.value, mask=x.mask),
        lambda x: [fmean(r) if r else 0.0 for r in trained_numbers(x.value, x.mask)],
    ),
    "align.spread": Pair(
        lambda x: align.spread(x.reward, mask=x.mask), lambda x: on_mask(x, x.reward.unsqueeze(1).expand(x.mask.shape))
    ),
    "align.at_last": Pair(
        lambda x: align.at_last(x.reward, mask=x.mask),
        lambda x: VALUES["outcome at the last trained token"](x.batch(), {})["at the last trained token"],
    ),
    "scan.discounted_suffix_sums": Pair(
        lambda x: scan.discounted_suffix_sums(x.value.nan_to_num(), discount=0.9),
        lambda x: RETURNS["reinforce++"](batch_of(torch.ones_like(x.mask), token_reward=x.value.nan_to_num()), TIME)[
            "rewards to go"
        ],
    ),
    "scan.trained_first": Pair(
        lambda x: torch.as_tensor(scan.trained_first(mask=x.mask)),
        lambda x: [sorted(range(len(row)), key=lambda t: not row[t]) for row in x.mask.tolist()],
    ),
    "kl.importance_weighted": Pair(
        lambda x: kl.importance_weighted(x.value, x.logprob, x.old, mask=x.mask),
        lambda x: importance_weighted(x.value, x.batch()),
    ),
    "penalty.in_reward": Pair(
        lambda x: penalty.in_reward(x.token_reward, x.logprob - x.ref, mask=x.mask, coefficient=0.3).token_reward,
        lambda x: KL_USES["k1 in the reward"](x.batch(reward=torch.zeros(len(x.live))), {"coefficient": 0.3}),
    ),
    "correction.weights.log_ratios": _compared(weights.log_ratios, "log ratios"),
    "correction.weights.token_weights": _compared(weights.token_weights, "token weights"),
    "correction.weights.sequence_weights": _compared(weights.sequence_weights, "sequence weights"),
    "correction.weights.geometric_weights": _compared(weights.geometric_weights, "geometric weights"),
    "correction.bounds.truncated": bounded_pair(bounds.truncated, "truncated", high=1.5),
    "correction.bounds.clipped": bounded_pair(bounds.clipped, "clipped weights", low=0.6, high=1.5),
    "correction.bounds.masked": bounded_pair(bounds.masked, "masked", low=0.6, high=1.5),
    "correction.rejection.vetoed": _compared(rejection.vetoed, "vetoed", floor=0.2),
    "correction.trust.off_policy_sequences_kept": corrected_pair(
        lambda x: trust.off_policy_sequences_kept(x.logprob, x.old, x.advantage, mask=x.mask, threshold=0.3),
        "off policy sequences kept",
        threshold=0.3,
    ),
    "staleness.fresh_rows": Pair(
        lambda x: staleness.fresh_rows(versions(x), mask=x.mask, current=4, most=2),
        lambda x: FRESH["fresh rows"](x.batch(version=versions(x)), {"current": 4, "most": 2}),
    ),
}
ESTIMATORS: tuple[rejection.Estimator, ...] = ("k1", "k2", "k3")
OVERS: tuple[rejection.Over, ...] = ("sum", "mean", "max")
APART |= {f"kl.{kind}": _kl(kind) for kind in ("k1", "k2", "k3", "absolute", "absolute_plus", "k1_plus", "k3_plus")}
APART |= {
    f"correction.rejection.rows_kept, {e} {o}": _compared(
        rejection.rows_kept, "rows kept", estimator=e, over=o, low=-0.9, high=0.9
    )
    for e in ESTIMATORS
    for o in OVERS
}
APART |= {
    f"correction.rejection.tokens_kept, {e}": _compared(
        rejection.tokens_kept, "tokens kept", estimator=e, low=-0.4, high=0.4
    )
    for e in ESTIMATORS
}


def versions(x: Draw) -> Tensor:
    """Versions from 0 to 3, the same padded and packed."""
    return (8 * x.value.nan_to_num() + 3 * x.token_reward.nan_to_num()).round().long() % 4
