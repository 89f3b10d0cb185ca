"""verl's rollout correction: importance weights and rejection masks."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Scope, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.target import Target

MODULE = "verl.trainer.ppo.rollout_corr_helper"
BOTH = f"{MODULE}.compute_rollout_correction_and_rejection_mask"

#: Rejection options with a threshold of each kind, by verl's own names.
REJECTIONS = {
    "token_k1": "0.5_2.0",
    "token_k2": "0.5",
    "token_k3": "0.5",
    "seq_sum_k1": "0.5_2.0",
    "seq_sum_k2": "0.5",
    "seq_sum_k3": "0.5",
    "seq_mean_k1": "0.5_2.0",
    "seq_mean_k2": "0.5",
    "seq_mean_k3": "0.5",
    "seq_max_k2": "0.5",
    "seq_max_k3": "0.5",
}

#: Importance weights: level, threshold, and whether they are normalised over the batch.
WEIGHTS: Mapping[str, Settings] = {
    "token": {"rollout_is": "token", "rollout_is_threshold": 2.0},
    "token icepop": {"rollout_is": "token", "rollout_is_threshold": "0.5_2.0"},
    "sequence": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """All weights and all rejections through the function that the trainer calls."""
    try:
        function = target.find(BOTH)
    except Unbindable as why:
        if "no module of this name" not in str(why) and "has no" not in str(why):
            yield Unbound(BOTH, "correct", str(why))
        return
    takes = inspect.signature(function).parameters
    for name, knobs in WEIGHTS.items():
        words = "str" in str(takes["rollout_is_threshold"].annotation) if "rollout_is_threshold" in takes else False
        if all(k in takes and (words or v in ("token", "sequence", 2.0)) for k, v in knobs.items()):
            yield _weights(target, name, knobs)
    if "rollout_rs_threshold" in takes:
        for name, threshold in REJECTIONS.items():
            yield _rejection(target, name, threshold)


def _call(target: Target, batch: Batch, settings: Settings) -> tuple[Any, Tensor]:
    mask = batch.mask.to(torch.int64)
    weights, kept, _ = target.call(BOTH, batch.old_logprob, batch.rollout_logprob, mask, **settings)
    return weights, kept


def _weights(target: Target, name: str, knobs: Settings) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        weights, _ = _call(target, batch, settings)
        return {"weight": weights.batch["rollout_is_weights"]}

    scope: Scope = "sequence" if name == "sequence" else "token"
    return _boundary(call, {"weight": Output("B T", "ratio", "weight", scope)}, f"weight {name}", knobs)


def _rejection(target: Target, name: str, threshold: str) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        _, kept = _call(target, batch, settings)
        return {"keep": ((kept > 0) | ~batch.mask).float()}

    scope: Scope = "sequence" if name.startswith("seq_") else "token"
    knobs = {"rollout_rs": name, "rollout_rs_threshold": threshold}
    return _boundary(call, {"keep": Output("B T", "", "keep", scope)}, f"reject {name}", knobs)


def _boundary(call: Any, outputs: Mapping[str, Output], name: str, knobs: Settings) -> Boundary:  # noqa: ANN401
    return Boundary(
        path=BOTH,
        stage="correct",
        call=call,
        reads=frozenset({"old_logprob", "rollout_logprob", "mask"}),
        outputs=outputs,
        settings={name: knobs},
        reach=", ".join(f"algorithm.rollout_correction.{k}={v}" for k, v in knobs.items()),
    )
