"""SkyRL: its estimators, GAE and the regular loss."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from benchmarks.ours import CLIP, DECAY, DISCOUNT, EPSILON
from benchmarks.peers.loading import audited
from benchmarks.tensors import Inputs, gradient

RELEASE = "skyrl==0.3.0"


def load() -> None:
    """Make it importable."""
    audited(RELEASE)


def _utils() -> Any:  # noqa: ANN401 - the peer's module
    return import_module("skyrl.backends.skyrl_train.utils.ppo_utils")


def _grpo(x: Inputs) -> Tensor:
    function = _utils().compute_grpo_outcome_advantage
    found: Tensor = function(x.token_reward, x.floats, index=x.uid, epsilon=EPSILON)[0]
    return found


def _rloo(x: Inputs) -> Tensor:
    found: Tensor = _utils().compute_rloo_outcome_advantage(x.token_reward, x.floats, index=x.uid)[0]
    return found


def _gae(x: Inputs) -> Tensor:
    function = _utils().compute_gae_advantage_return
    found: Tensor = function(x.token_reward, x.value, x.floats, DISCOUNT, DECAY)[0]
    return found


#: What the loss reads of its configuration.
_CONFIG = SimpleNamespace(
    policy_loss_type="regular",
    eps_clip_low=CLIP,
    eps_clip_high=CLIP,
    off_policy_correction=SimpleNamespace(
        tis_ratio_type=None,
        sequence_mask_metric=None,
        outlier_token_is_threshold_low=None,
        outlier_token_is_threshold_high=None,
        token_mask_is_threshold_low=None,
        token_mask_is_threshold_high=None,
    ),
)


def _ppo(x: Inputs) -> Tensor:
    leaf = x.logprob.clone().requires_grad_()
    loss, _metrics = _utils().ppo_policy_loss(leaf, x.old_logprob, x.wide, _CONFIG, x.floats)
    return gradient(loss, leaf) / x.tokens  # its trainer scales advantages beforehand


PARTS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "GRPO": {"loop": _grpo},
    "RLOO": {"loop": _rloo},
    "GAE": {"loop over tokens": _gae},
    "PPO loss and gradient": {"eager": _ppo},
}
