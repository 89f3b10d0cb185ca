"""Boundaries of verl's ``compute_advantage``: alone, and after rollout correction as in the trainer."""

import inspect
from collections.abc import Iterator

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.result_forms import KeptMask
from rl_sentinel.adapters.kit.reward_codecs import Part
from rl_sentinel.adapters.kit.roles import takes
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.advantages import CLAIMS, DISCOUNTED, advantage_outputs, estimator_claims, estimators
from rl_sentinel.adapters.verl.arguments import (
    MASK_PRODUCER,
    UIDS,
    algorithm,
    critic_values,
    data_proto,
    every_token_is_trained,
    knows_response_mask,
    trainer_data,
)
from rl_sentinel.adapters.verl.correction import ADDED, BOTH, CONFIG, reach_of_weights, rejections, weights_of_sampler
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

DISPATCH = "verl.trainer.ppo.ray_trainer.compute_advantage"

#: Names of the reward parts, as a scoring function returns them.
PARTS = ("first_part", "second_part")

#: Estimators that divide by the standard deviation by default.
_STANDARDIZED = ("grpo", "grpo_vectorized", "grpo_passk", "gdpo")

#: verl's setting that turns the division off.
_BY_DEVIATION = "norm_adv_by_std_in_grpo"

_DEVIATION = claims(
    "verl.readthedocs.io/en/latest/algo/grpo.html: norm_adv_by_std_in_grpo=False turns the standard deviation off; "
    "each of these estimators has an argument of that name, and does so",
    knobs={_BY_DEVIATION: (True, False)},
)

#: Rejection options for whole sequences: of newer releases, and of the first ones.
SEQUENCE = ("seq_sum_k1", "seq")

#: The estimator that uses importance weights, if the batch has them.
_BASELINE = "optimal_token_baseline"

_WEIGHTED = (
    "compute_optimal_token_baseline_advantage, docstring: importance weights of the rollout correction are squared "
    "in the baseline; the correction clamps them at its threshold"
)

#: Estimator -> tensors that the dispatch reads for it, besides rewards, mask and values.
TENSORS: dict[str, dict[str, Codec]] = {
    "remax": {"reward_baselines": Column("reward_baseline")},
    "optimal_token_baseline": {"old_log_probs": Column("old_logprob"), "sum_pi_squared": Column("pi_squared")},
    "tir_optimal_token_baseline": {"old_log_probs": Column("old_logprob"), "sum_pi_squared": Column("pi_squared")},
}

#: Estimators with temporal credit, which read token rewards.
_TEMPORAL = ("gae", "remax", "reinforce_plus_plus", "optimal_token_baseline", "tir_optimal_token_baseline")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of ``compute_advantage`` with each estimator, with importance weights, and after rejection."""
    try:
        target.find(DISPATCH)
        functions = estimators(target)
    except Unbindable as why:
        yield Unbound.because(DISPATCH, "advantage", why)
        return
    for name, function in functions.items():
        yield from bindable(target, _dispatch(target, name, estimator_claims(name, function)))
        if name != _BASELINE or not takes(function, "rollout_weight"):
            continue
        if failing := target.fails(BOTH):
            yield Unbound(f"{BOTH} -> {DISPATCH}", "advantage", failing)
        elif weighed := weights_of_sampler(target):
            yield from bindable(target, _weighted(target, name, estimator_claims(name, function), *weighed))
    if failing := target.fails(ADDED):
        yield Unbound(f"{ADDED} -> {DISPATCH}", "advantage", failing)
    elif target.has(ADDED):
        known = rejections(target)
        option = next((name for name in SEQUENCE if name in known), "")
        for name in ("grpo", "rloo") if option else ():
            yield from bindable(target, _route(target, name, option, known[option]))


def estimate(target: Target, path: str, name: str, data: Codec, *, tuned: bool = False) -> Step:
    """The step that calls ``compute_advantage``, or a function with the same parameters, for one estimator."""
    discounts: dict[str, Codec] = {n: Knob(n, 1.0) for n in ("gamma", "lam")}
    deviation = Knob(_BY_DEVIATION, default=True)
    section = discounts | ({_BY_DEVIATION: deviation} if tuned else {})
    if name == "gdpo":
        section["gdpo_reward_keys"] = Constant(list(PARTS))
    passed = {
        "data": data,
        **constants(adv_estimator=name, multi_turn=True),
        **discounts,
        _BY_DEVIATION: deviation,
        "config": algorithm(target, **section),
    }
    return Step(
        call=path,
        name="estimated",
        arguments=passed,
        optional=frozenset(passed) - {"data", "adv_estimator"},
        produced_by={"data": MASK_PRODUCER},
    )


def estimator_data(target: Target, name: str, entered: str, **more: Codec) -> Object:
    """The trainer's batch for one estimator."""
    values = {"values": critic_values(target)} if name == "gae" else {}
    data = trainer_data(target, entered, **values, **TENSORS.get(name, {}), **more)
    if name != "gdpo":
        return data
    labels: dict[str, Codec] = {"uid": UIDS, **{key: Part(number) for number, key in enumerate(PARTS)}}
    tensors = data.parts["tensors"]
    return data_proto(tensors.parts if isinstance(tensors, Table) else {}, labels)


def unused_of(name: str) -> frozenset[str]:
    """Columns of the trainer's batch that this estimator does not read."""
    rewards = {"reward", "token_reward"} if name == "gdpo" else set() if name in _TEMPORAL else {"token_reward"}
    return frozenset({"token", *rewards})


ESTIMATED = Use("estimated").attribute("batch")


def _dispatch(target: Target, name: str, claimed: Claims) -> Boundary:
    tuned = name in _STANDARDIZED and _BY_DEVIATION in inspect.getsource(target.module(DISPATCH.rpartition(".")[0]))
    data = estimator_data(target, name, DISPATCH)
    return Boundary(
        path=DISPATCH,
        stage="advantage",
        steps=(estimate(target, DISPATCH, name, data, tuned=tuned),),
        unused=unused_of(name),
        outputs=advantage_outputs(ESTIMATED["advantages"], ESTIMATED["returns"]),
        settings={name: DISCOUNTED.get(name, {})},
        claims=claimed | (_DEVIATION if tuned else Claims()),
        reach=f"algorithm.adv_estimator={name}",
        requires=() if knows_response_mask(target, DISPATCH) else (every_token_is_trained,),
    )


def _weighted(target: Target, name: str, claimed: Claims, step: Step, weights: Use) -> Boundary:
    """The boundary of the optimal token baseline with importance weights."""
    data = estimator_data(target, name, DISPATCH, rollout_is_weights=Earlier(weights))
    return Boundary(
        path=f"{step.call} -> {DISPATCH}",
        stage="advantage",
        steps=(step, estimate(target, DISPATCH, name, data)),
        unused=unused_of(name),
        outputs=advantage_outputs(ESTIMATED["advantages"], None),
        settings={f"{name}, token weights": {}},
        claims=claimed | claims(_WEIGHTED, corrected_at_most=2.0),
        reach=f"algorithm.adv_estimator={name} {reach_of_weights(step)}",
    )


def _route(target: Target, name: str, option: str, rejection: Settings) -> Boundary:
    """The boundary of rejection and then advantages, as in the trainer."""
    config = Object(CONFIG, constants(rollout_is=None, **rejection), shared=True)
    logprobs = {"old_log_probs": Column("old_logprob"), "rollout_log_probs": Column("rollout_logprob")}
    reject = Step(
        call=ADDED,
        name="corrected",
        arguments={"batch": trainer_data(target, DISPATCH, **logprobs), "rollout_corr_config": config},
        produced_by={"batch": MASK_PRODUCER},
    )
    corrected = Use("corrected")[0]
    keep = Output(
        "B T", "", "keep", scope="sequence", at=corrected.attribute("batch")["response_mask"], form=KeptMask(Padded())
    )
    return Boundary(
        path=f"{ADDED} -> {DISPATCH}",
        stage="advantage",
        steps=(reject, estimate(target, DISPATCH, name, Earlier(corrected))),
        unused=unused_of(name),
        outputs={**advantage_outputs(ESTIMATED["advantages"], None), "keep": keep},
        settings={f"{name}, {option}": {}},
        claims=CLAIMS[name],
        reach=f"algorithm.adv_estimator={name} algorithm.rollout_correction.rollout_rs={option}",
    )
