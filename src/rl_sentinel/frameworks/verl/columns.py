"""verl's layout: response-aligned, right-padded tensors, a uid per prompt, a config object."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.errors import Absent, Unbindable
from rl_sentinel.frameworks.binding import takes
from rl_sentinel.frameworks.layout import token_rewards
from rl_sentinel.frameworks.target import Target

#: role -> how the neutral batch becomes what verl passes.
ROLES: Mapping[str, Callable[[Batch], Any]] = {
    "token_rewards": token_rewards,
    "mask": lambda b: b.mask.to(torch.int64),
    "group": lambda b: np.array([f"prompt-{g}" for g in b.group.tolist()], dtype=object),
    "values": lambda b: b.value,
    "reward_baseline": lambda b: b.reward_baseline,
    "old_logprob": lambda b: b.old_logprob,
    "logprob": lambda b: b.logprob,
    "ref_logprob": lambda b: b.ref_logprob,
    "pi_squared": lambda b: b.pi_squared,
    "advantage": lambda b: b.advantage,
    "returns": lambda b: b.returns,
}


def taken(batch: Batch, function: Callable[..., Any]) -> dict[str, Any]:
    """What a function takes of the batch, by role."""
    return {role: make(batch) for role, make in ROLES.items() if takes(function, role)}


#: Settings of the algorithm section that boundaries name.
ALGORITHM = (
    "gamma",
    "lam",
    "norm_adv_by_std_in_grpo",
    "gdpo_reward_keys",
    "gdpo_reward_weights",
    "use_pf_ppo",
    "pf_ppo",
)


def uids(batch: Batch) -> np.ndarray[Any, np.dtype[np.object_]]:
    """One uid string per row, equal for the responses of one prompt."""
    return np.array([f"prompt-{g}" for g in batch.group.tolist()], dtype=object)


def algorithm(target: Target, knobs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the target's class
    """The algorithm section of the configuration: verl's own class, or OmegaConf before it had one."""
    given = {k: v for k, v in knobs.items() if k in ALGORITHM}
    try:
        return target.call("verl.trainer.config.AlgoConfig", **given)
    except Unbindable:
        from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

        return OmegaConf.create(dict(given))


def proto(target: Target, tensors: dict[str, Tensor], labels: dict[str, Any], about: dict[str, Any]) -> Any:  # noqa: ANN401
    """A ``DataProto`` of verl."""
    return target.call("verl.DataProto.from_dict", tensors=tensors, non_tensors=labels, meta_info=about)


def absent(why: Unbindable) -> bool:
    """Whether a release has no such thing, which is no failure where other releases have it."""
    return isinstance(why, Absent)
