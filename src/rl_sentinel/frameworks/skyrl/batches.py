"""SkyRL's layout: responses right-aligned in a training batch, a uid per prompt, one configuration."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import NotApplicable, Unbindable
from rl_sentinel.frameworks.layout import put_right, take_right, token_rewards
from rl_sentinel.frameworks.target import Target

MODULE = "skyrl.backends.skyrl_train.utils.ppo_utils"
CONFIG = "skyrl.train.config.SkyRLTrainConfig"
INPUT = "skyrl.backends.skyrl_train.training_batch.TrainingInputBatch"

STEP_WISE = "generator.step_wise_trajectories"


def right(batch: Batch, column: str) -> Tensor:
    """A column of the batch, right-aligned."""
    return put_right(getattr(batch, column), batch.length)


def uids(batch: Batch) -> np.ndarray[Any, np.dtype[np.str_]]:
    """One uid per row, equal for the responses of one prompt."""
    return np.array([f"prompt-{g}" for g in batch.group.tolist()])


def training_input(target: Target, batch: Batch) -> Any:  # noqa: ANN401 - the target's class
    """The batch as the trainer holds it before advantages.

    The mark of a trajectory's last step was a tensor first, and is metadata since; both are there.
    """
    response = put_right(batch.valid.to(torch.int64), batch.length)
    data = target.call(
        INPUT,
        {
            "sequences": right(batch, "token"),
            "response_mask": response,
            "loss_mask": right(batch, "mask").to(torch.int64),
            "rewards": put_right(token_rewards(batch), batch.length),
            "values": right(batch, "value"),
            "action_log_probs": right(batch, "old_logprob"),
            "base_action_log_probs": right(batch, "ref_logprob"),
            "is_last_step": batch.last_step.clone(),
        },
    )
    data.metadata = {
        "uids": uids(batch).tolist(),
        "is_last_step": batch.last_step.tolist(),
        "avg_response_length": float(batch.length.float().mean()),
    }
    return data


def back(column: Tensor, batch: Batch) -> Tensor:
    """Response-aligned ``[B, T]`` from a right-aligned tensor."""
    return take_right(column.float(), batch.length)


def steps_in_order(batch: Batch) -> None:
    """Refuse what the trainer cannot be given: steps apart, or a trajectory without its last step.

    Raises:
        NotApplicable: then, with the reason.
    """
    ends = torch.ones_like(batch.last_step)
    ends[:-1] = batch.trajectory[1:] != batch.trajectory[:-1]
    whole = len(torch.unique_consecutive(batch.trajectory)) == len(set(batch.trajectory.tolist()))
    if not whole or not torch.equal(ends, batch.last_step):
        raise NotApplicable("steps of a trajectory do not stand together, its last step last")


def config(target: Target, settings: Settings) -> Any:  # noqa: ANN401 - the target's class
    """SkyRL's own configuration, with dotted settings put in.

    Raises:
        Unbindable: if a setting has no place there.
    """
    made = target.call(CONFIG)
    for path, value in settings.items():
        owner = made
        *walk, leaf = path.split(".")
        for name in walk:
            owner = getattr(owner, name, None)
        if not hasattr(owner, leaf):
            raise Unbindable(f"{CONFIG} has no {path}")
        setattr(owner, leaf, value)
    return made


def algorithm(target: Target, settings: Settings) -> Any:  # noqa: ANN401 - the target's class
    """The algorithm section of the configuration."""
    return config(target, {f"trainer.algorithm.{k}": v for k, v in settings.items()}).trainer.algorithm


def trainer(target: Target, settings: Settings, **more: object) -> SimpleNamespace:
    """What a method of the trainer asks of its object; any other attribute raises its name."""
    return SimpleNamespace(cfg=config(target, settings), all_metrics={}, **more)
