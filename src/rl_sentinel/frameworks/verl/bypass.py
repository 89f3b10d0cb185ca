"""verl's loss in bypass mode: weights and rejections are made inside, of the sampler's log-probs."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.frameworks.binding import bound
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.actor import SECTION, actor
from rl_sentinel.frameworks.verl.advantages import path_of
from rl_sentinel.frameworks.verl.aggregation import aggregation
from rl_sentinel.frameworks.verl.columns import taken
from rl_sentinel.frameworks.verl.loss_claims import RATIO
from rl_sentinel.frameworks.verl.policy_loss import RANGE, answered, boundary

#: The loss that makes weights and rejections inside, of the sampler's log-probs and the current ones.
BYPASS = "bypass_mode"

CORRECTION = "verl.trainer.config.algorithm.RolloutCorrectionConfig"

#: Settings of its section; the names are the framework's own.
BYPASSES: Mapping[str, Settings] = {
    "clipped": {"loss_type": "ppo_clip", "rollout_is": None},
    "reinforce, token weights": {"loss_type": "reinforce", "rollout_is": "token"},
    "reinforce, rejection": {
        "loss_type": "reinforce",
        "rollout_is": None,
        "rollout_rs": "seq_mean_k1",
        "rollout_rs_threshold": "0.5_2.0",
    },
}

_BYPASS = "compute_policy_loss_bypass_mode, docstring: the ratio is of the current to the rollout policy; "

#: What the docstring says of each; the rows that a rejection keeps are its own.
_BYPASS_CLAIMS: Mapping[str, Claims] = {
    "clipped": claims(_BYPASS + "ppo_clip is the clipped objective, without weights", algorithm="dual clip"),
    "reinforce, token weights": claims(
        _BYPASS + "reinforce weighs the log-prob by the truncated ratio, at most 2 by default",
        algorithm="reinforce",
        corrected_at_most=2.0,
    ),
}


def holds_correction(target: Target) -> bool:
    """Whether the policy loss's section has a place for the correction, as bypass mode reads it."""
    section = "verl.workers.config.PolicyLossConfig"
    if not target.has(section) or target.fails(section):
        return False  # the losses themselves tell that it fails
    return "rollout_correction" in {f.name for f in fields(target.find(section))}


def bypassing(target: Target, function: Callable[..., Any], family: str) -> Boundary:
    """The loss with one family of settings; what it compares is the sampler's log-probs and the current ones."""
    path = path_of(function)
    target.source(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = taken(batch, function)
        section = target.call(CORRECTION, bypass_mode=True, **BYPASSES[family])
        config = actor(target, BYPASS, {word: settings[n] for n, word in SECTION.items() if n in settings})
        config = replace(config, policy_loss=replace(config.policy_loss, rollout_correction=section))
        given |= {"aggregation": "seq-mean-token-mean", "config": config, "old_logprob": batch.rollout_logprob}
        return answered(target.call(path, **bound(function, given)), ())

    said = RATIO | aggregation(target, "seq-mean-token-mean") | _BYPASS_CLAIMS.get(family, Claims())
    numbers = RANGE if family == "clipped" else {}
    reach = "algorithm.rollout_correction.bypass_mode=True"
    made = boundary(path, call, said, {family: numbers}, reach, {})
    return replace(made, reads=frozenset({"logprob", "rollout_logprob", "advantage", "mask"}))
