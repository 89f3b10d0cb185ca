"""Boundaries of verl's bypass-mode loss, which computes weights and rejections itself from the sampler's log-probs."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.result_forms import Detached
from rl_sentinel.adapters.kit.roles import by_role
from rl_sentinel.adapters.kit.value_codecs import Constant, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import actor, section_names
from rl_sentinel.adapters.verl.advantages import path_of
from rl_sentinel.adapters.verl.aggregation import aggregation
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, ROLES
from rl_sentinel.adapters.verl.correction import MODULE
from rl_sentinel.adapters.verl.loss_claims import LOGGED, RATIO
from rl_sentinel.adapters.verl.mismatch import GAPS, PAIRS
from rl_sentinel.adapters.verl.policy_loss import RANGE, loss_outputs
from rl_sentinel.core.boundary import Boundary, Output, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

#: Registered name of the loss.
BYPASS = "bypass_mode"

CORRECTION = "verl.trainer.config.algorithm.RolloutCorrectionConfig"

#: Settings of the correction section, by verl's names.
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

#: Further claims per setting; none with rejection, because the set of kept rows differs.
_BYPASS_CLAIMS: Mapping[str, Claims] = {
    "clipped": claims(_BYPASS + "ppo_clip is the clipped objective, without weights", algorithm="dual clip"),
    "reinforce, token weights": claims(
        _BYPASS + "reinforce multiplies the log-prob by the truncated ratio, at most 2 by default",
        algorithm="reinforce",
        corrected_at_most=2.0,
    ),
}

_PREFIX, _KL = "rollout_corr/", "actor/ppo_kl"

_LOGGED = (
    "compute_policy_loss_bypass_mode, docstring and comments: the metrics compare the current policy with the rollout "
    "policy, whose log-probs are old_log_prob"
)


def has_correction_section(target: Target) -> bool:
    """Whether the policy-loss section has the field ``rollout_correction``, which bypass mode reads."""
    section = "verl.workers.config.PolicyLossConfig"
    if not target.has(section) or target.fails(section):
        return False  # the other losses report the failure
    return "rollout_correction" in {f.name for f in fields(target.find(section))}


def bypass_boundary(target: Target, function: Callable[..., Any], family: str) -> Boundary:
    """The boundary of the loss with one setting. Its ratio compares the current policy with the sampler."""
    path = path_of(function)
    target.source(function)
    numbers: Settings = RANGE if family == "clipped" else {}
    correction = Object(CORRECTION, constants(bypass_mode=True, **BYPASSES[family]))
    config = actor(target, BYPASS, section_names(numbers), {}, {"rollout_correction": correction})
    # In bypass mode old_log_prob is the sampler's: rollout_corr_helper.py, apply_bypass_mode.
    sampler = Column("rollout_logprob")
    roles = {**ROLES, "old_logprob": sampler, "aggregation": Constant("seq-mean-token-mean"), "config": config}
    logged = {} if "rejection" in family else _logged(target)
    return one_call(
        path=path,
        stage="policy-loss",
        call=path,
        name="result",
        arguments=by_role(function, roles),
        produced_by={
            "response_mask": MASK_PRODUCER,
            "old_log_prob": "rollout_corr_helper.py, apply_bypass_mode",
        },
        outputs=loss_outputs(function, {}) | logged,
        settings={family: numbers},
        claims=RATIO
        | aggregation(target, "seq-mean-token-mean")
        | _BYPASS_CLAIMS.get(family, Claims())
        | claims(_LOGGED, output_pairs={name: _pair(name) for name in logged}),
        reach="algorithm.rollout_correction.bypass_mode=True",
    )


def _logged(target: Target) -> dict[str, Output]:
    """The metrics that the loss returns in each setting without rejections."""
    source = inspect.getsource(target.module(MODULE))
    quantities = {f"{_PREFIX}{name}": what for name, what in GAPS.items() if f'metrics["{name}"]' in source}
    quantities[_KL] = LOGGED[_KL].quantity
    return {
        name: Output("", "", quantity, over="live", at=Use("result")[1][name], form=Detached())
        for name, quantity in quantities.items()
    }


def _pair(name: str) -> str:
    """The two policies that a metric compares: the sampler and the current policy, which stands for the old one."""
    if name == _KL:
        return "rollout_logprob against logprob"
    return PAIRS[name.removeprefix(_PREFIX)].replace("old_logprob", "logprob")
