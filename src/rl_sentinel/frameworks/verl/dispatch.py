"""verl's dispatch to its estimators, and the route from rejection to advantage, in its trainer's order."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.layout import token_rewards
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.advantages import CLAIMS, estimators
from rl_sentinel.frameworks.verl.columns import algorithm, claims, proto, uids

DISPATCH = "verl.trainer.ppo.ray_trainer.compute_advantage"
REJECT = "verl.trainer.ppo.rollout_corr_helper.compute_rollout_correction_and_add_to_batch"

#: Estimators whose row of the dispatch wants a configuration section of its own.
_APART = ("gdpo",)

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
        names = list(estimators(target))
    except Unbindable as why:
        yield Unbound(DISPATCH, "advantage", str(why))
        return
    for name in names:
        if name not in _APART:
            yield _dispatch(target, name)
    if target.has(REJECT):
        for name in ("grpo", "rloo"):
            yield _route(target, name)


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
    source = inspect.getsource(inspect.unwrap(target.find(path)))
    return any(word in source for word in ('["response_mask"]', "['response_mask']", '["loss_mask"]'))


def given_to(target: Target, path: str, **offered: Any) -> dict[str, Any]:  # noqa: ANN401 - settings
    """Those of the offered keyword arguments that a function of this release takes."""
    takes = inspect.signature(inspect.unwrap(target.find(path))).parameters
    return {k: v for k, v in offered.items() if k in takes}


def _advantages(target: Target, data: Any, name: str, settings: Settings) -> Any:  # noqa: ANN401
    config = algorithm(target, {"gamma": 1.0, "lam": 1.0, **settings})
    standardise = settings.get("norm_adv_by_std_in_grpo", True)
    given = {
        "adv_estimator": name,
        "gamma": 1.0,
        "lam": 1.0,
        "norm_adv_by_std_in_grpo": standardise,
        "config": config,
    }
    return target.call(DISPATCH, data, **given_to(target, DISPATCH, multi_turn=True, **given))


def _dispatch(target: Target, name: str) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        data = data_of(target, batch, DISPATCH)
        if name == "remax":
            data.batch["reward_baselines"] = batch.reward_baseline
        data = _advantages(target, data, name, settings)
        return {"advantage": data.batch["advantages"].float(), "returns": data.batch["returns"].float()}

    return Boundary(
        path=DISPATCH,
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "mask", "length", "group"} | _READS.get(name, set())),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "returns": Output("B T", "reward", "returns"),
        },
        settings={name: {}},
        claims=CLAIMS.get(name, {}),
        reach=f"algorithm.adv_estimator={name}",
    )


def _route(target: Target, name: str) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        config = target.call(
            "verl.trainer.config.algorithm.RolloutCorrectionConfig",
            rollout_is=None,
            rollout_rs="seq_sum_k1",
            rollout_rs_threshold="0.5_2.0",
        )
        data = data_of(target, batch, DISPATCH)
        before = data.batch["response_mask"].clone()
        data, _ = target.call(REJECT, data, config)
        kept = data.batch["response_mask"]
        data = _advantages(target, data, name, settings)
        keep = (kept > 0) | (before == 0)
        return {"advantage": data.batch["advantages"].float(), "keep": keep.float()}

    return Boundary(
        path=f"{REJECT} -> {DISPATCH}",
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "mask", "length", "group", "old_logprob", "rollout_logprob"}),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "keep": Output("B T", "", "keep", scope="sequence"),
        },
        settings={f"{name}, seq_sum_k1": {}},
        claims=dict(CLAIMS[name])
        | claims("rollout_corr_helper.py, docstring: seq_ options decide per sequence", rejects="sequence"),
        reach=f"algorithm.adv_estimator={name} algorithm.rollout_correction.rollout_rs=seq_sum_k1",
    )
