"""OpenRLHF: GAE of its experience maker, its loss module, log-probs."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from torch import Tensor

from benchmarks.ours import CLIP, DECAY, DISCOUNT
from benchmarks.peers.loading import other
from benchmarks.tensors import Inputs, gradient

RELEASE = "openrlhf==0.11.2"


def load() -> None:
    """Make it importable."""
    other(RELEASE)


def _gae(x: Inputs) -> Tensor:
    maker = import_module("openrlhf.trainer.ppo_utils.experience_maker").RemoteExperienceMaker
    function = maker.get_advantages_and_returns
    found: Tensor = function(None, x.value, x.token_reward, x.floats, DISCOUNT, DECAY)[0]
    return found


def _ppo(x: Inputs) -> Tensor:
    loss = import_module("openrlhf.models.loss").PolicyLoss(clip_eps_low=CLIP, clip_eps_high=CLIP)
    leaf = x.logprob.clone().requires_grad_()
    return gradient(loss(leaf, x.old_logprob, x.wide, x.floats)[0], leaf)


def _score(logits: Tensor, token: Tensor) -> Tensor:
    leaf = logits.detach().requires_grad_()
    return gradient(import_module("openrlhf.models.utils").log_probs_from_logits(leaf, token).sum(), leaf)


PARTS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "GAE": {"loop over tokens": _gae},
    "PPO loss and gradient": {"eager": _ppo},
    "log-probs and gradient": {"eager": _score},
}
