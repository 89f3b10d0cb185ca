"""verl's dispatch to its estimators, and the route from rejection to advantage, in its trainer's order."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.binding import takes
from rl_sentinel.frameworks.layout import token_rewards
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.advantages import CLAIMS, DISCOUNTED, estimators, said_of
from rl_sentinel.frameworks.verl.columns import algorithm, proto, uids
from rl_sentinel.frameworks.verl.correction import ADDED, BOTH, CONFIG, WEIGHTS, accepts, rejections, remembered

DISPATCH = "verl.trainer.ppo.ray_trainer.compute_advantage"

#: Names that the parts of a reward are given, as a scoring function would answer them.
PARTS = ("first_part", "second_part")

#: Estimators that divide by a deviation unless told not to.
_STANDARDISED = ("grpo", "grpo_vectorized", "grpo_passk", "gdpo")

#: Whether to divide by it, where a release has the knob.
_BY_DEVIATION = "norm_adv_by_std_in_grpo"

_DEVIATION = claims(
    "verl.readthedocs.io/en/latest/algo/grpo.html: norm_adv_by_std_in_grpo=False turns the standard deviation off; "
    "each of these estimators has an argument of that name, and does so",
    knobs={_BY_DEVIATION: (True, False)},
)

#: Rejections of whole sequences, of newer releases and of the first ones.
SEQUENCE = ("seq_sum_k1", "seq")

#: Estimators that discount; others take no discount, or have it at 1.
_DISCOUNTS = ("gae", "reinforce_plus_plus")

#: The estimator whose baseline is weighed for the sampler, where the batch has weights.
_BASELINE = "optimal_token_baseline"

_WEIGHED = (
    "compute_optimal_token_baseline_advantage, docstring: where weights of the rollout correction are given, the "
    "baseline weighs by their squares; that correction clamps them at its threshold"
)

_READS = {
    "gae": {"value", "token_reward"},
    "remax": {"reward_baseline", "token_reward"},
    "reinforce_plus_plus": {"token_reward"},
    "optimal_token_baseline": {"old_logprob", "pi_squared", "token_reward"},
    "tir_optimal_token_baseline": {"old_logprob", "pi_squared", "token_reward"},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The dispatch, one setting per estimator, then the route."""
    try:
        target.find(DISPATCH)
        found = estimators(target)
    except Unbindable as why:
        yield Unbound(DISPATCH, "advantage", str(why))
        return
    for name, function in found.items():
        yield _dispatch(target, name, said_of(name, function))
        if name != _BASELINE or not takes(function, "rollout_weight"):
            continue
        if failing := target.fails(BOTH):
            yield Unbound(f"{BOTH} -> {DISPATCH}", "advantage", failing)
        elif accepts(target, WEIGHTS["token"]):
            yield _weighed(target, name, said_of(name, function))
    if failing := target.fails(ADDED):
        yield Unbound(f"{ADDED} -> {DISPATCH}", "advantage", failing)
    elif target.has(ADDED):
        known = rejections(target)
        option = next((name for name in SEQUENCE if name in known), "")
        for name in ("grpo", "rloo") if option else ():
            yield _route(target, name, option, known[option])


def data_of(target: Target, batch: Batch, entered: str) -> Any:  # noqa: ANN401 - the target's DataProto
    """The batch as the trainer holds it when rewards and log-probs are there.

    ``entered`` is the dotted path that it is for: a release in which that function knows no mask but
    the attention mask leaves out a token by that one.
    """
    prompt = torch.ones(batch.rows, 1, dtype=torch.int64)
    mask = batch.mask.to(torch.int64)
    valid = batch.valid.to(torch.int64) if knows_response_mask(target, entered) else mask
    rewards = token_rewards(batch)
    tensors = {
        "token_level_rewards": rewards,
        "token_level_scores": rewards.clone(),
        "response_mask": mask,
        "loss_mask": torch.cat([prompt * 0, mask], dim=1),
        "values": batch.value,
        "old_log_probs": batch.old_logprob,
        "rollout_log_probs": batch.rollout_logprob,
        "ref_log_prob": batch.ref_logprob,
        "sum_pi_squared": batch.pi_squared,
        "prompts": prompt,
        "responses": batch.token,
        "attention_mask": torch.cat([prompt, valid], dim=1),
    }
    return proto(target, tensors, {"uid": uids(batch)}, {})


def knows_response_mask(target: Target, path: str) -> bool:
    """Whether a function takes the trained tokens from ``response_mask`` or ``loss_mask``."""
    return _names_a_mask(inspect.unwrap(target.find(path)))


@cache
def _names_a_mask(function: Callable[..., Any]) -> bool:
    """Kept, since a source is read and cut into tokens each time that it is asked for."""
    source = inspect.getsource(function)
    return any(word in source for word in ('["response_mask"]', "['response_mask']", '["loss_mask"]'))


def given_to(target: Target, path: str, **offered: Any) -> dict[str, Any]:  # noqa: ANN401 - settings
    """Those of the offered keyword arguments that a function of this release takes."""
    takes = _parameters(inspect.unwrap(target.find(path)))
    return {k: v for k, v in offered.items() if k in takes}


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def advantages(target: Target, data: Any, name: str, settings: Settings, path: str = DISPATCH, **more: Any) -> Any:  # noqa: ANN401
    """The data with its advantages, from the dispatch or from what stands before it."""
    knobs: dict[str, Any] = {"gamma": 1.0, "lam": 1.0, **settings}
    discounts = {n: knobs[n] for n in ("gamma", "lam")}
    if name == "gdpo":
        knobs["gdpo_reward_keys"] = list(PARTS)
    config = algorithm(target, knobs)
    standardise = settings.get("norm_adv_by_std_in_grpo", True)
    given = {
        "adv_estimator": name,
        **discounts,
        "norm_adv_by_std_in_grpo": standardise,
        "config": config,
    }
    return target.call(path, data, **more, **given_to(target, path, multi_turn=True, **given))


def reads_of(name: str) -> frozenset[str]:
    """The columns that an estimator reads through the dispatch."""
    rewards = {"reward_parts"} if name == "gdpo" else {"reward"}
    return frozenset({"mask", "length", "group"} | rewards | _READS.get(name, set()))


def _dispatch(target: Target, name: str, said: Claims) -> Boundary:
    tuned = name in _STANDARDISED and _BY_DEVIATION in inspect.getsource(target.module(DISPATCH.rpartition(".")[0]))

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        data = data_of(target, batch, DISPATCH)
        if name == "remax":
            data.batch["reward_baselines"] = batch.reward_baseline
        if name == "gdpo":
            parts = batch.reward_parts.float().unbind(1)
            data.non_tensor_batch |= {key: part.numpy() for key, part in zip(PARTS, parts, strict=True)}
        data = advantages(target, data, name, settings)
        return {"advantage": data.batch["advantages"].float(), "returns": data.batch["returns"].float()}

    return Boundary(
        path=DISPATCH,
        stage="advantage",
        call=call,
        reads=reads_of(name),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "returns": Output("B T", "reward", "returns"),
        },
        settings={name: DISCOUNTED if name in _DISCOUNTS else {}},
        claims=said | (_DEVIATION if tuned else Claims()),
        reach=f"algorithm.adv_estimator={name}",
    )


def _weighed(target: Target, name: str, said: Claims) -> Boundary:
    """A baseline that is weighed for the sampler by what the correction has put into the batch."""
    weights = remembered(target)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        data = data_of(target, batch, DISPATCH)
        data.batch["rollout_is_weights"] = weights(batch)
        data = advantages(target, data, name, settings)
        return {"advantage": data.batch["advantages"].float()}

    return Boundary(
        path=f"{BOTH} -> {DISPATCH}",
        stage="advantage",
        call=call,
        reads=reads_of(name) | {"rollout_logprob"},
        outputs={"advantage": Output("B T", "reward", "advantage")},
        settings={f"{name}, token weights": {}},
        claims=said | claims(_WEIGHED, corrected_at_most=2.0),
        reach=f"algorithm.adv_estimator={name} algorithm.rollout_correction.rollout_is=token",
    )


def _route(target: Target, name: str, option: str, rejection: Settings) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        config = target.call(CONFIG, rollout_is=None, **rejection)
        data = data_of(target, batch, DISPATCH)
        before = data.batch["response_mask"].clone()
        data, _ = target.call(ADDED, data, config)
        kept = data.batch["response_mask"]
        data = advantages(target, data, name, settings)
        keep = (kept > 0) | (before == 0)
        return {"advantage": data.batch["advantages"].float(), "keep": keep.float()}

    return Boundary(
        path=f"{ADDED} -> {DISPATCH}",
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "mask", "length", "group", "old_logprob", "rollout_logprob"}),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "keep": Output("B T", "", "keep", scope="sequence"),
        },
        settings={f"{name}, {option}": {}},
        claims=CLAIMS[name],
        reach=f"algorithm.adv_estimator={name} algorithm.rollout_correction.rollout_rs={option}",
    )
