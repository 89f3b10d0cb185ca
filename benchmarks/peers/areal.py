"""AReaL: the actor's loss; its GAE is part of a method that does everything else too, and is not timed."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from torch import Tensor

from benchmarks.ours import CLIP
from benchmarks.peers.loading import audited
from benchmarks.tensors import Inputs, gradient

RELEASE = "areal==1.0.4"


def load() -> None:
    """Make it importable."""
    audited(RELEASE)


def _ppo(x: Inputs) -> Tensor:
    function = import_module("areal.utils.functional.functional").ppo_actor_loss_fn
    leaf = x.logprob.clone().requires_grad_()
    loss, _metrics = function(leaf, x.old_logprob, x.old_logprob, x.wide, CLIP, x.mask)
    return gradient(loss, leaf)


PARTS: Mapping[str, Mapping[str, Callable[..., Any]]] = {"PPO loss and gradient": {"eager": _ppo}}
