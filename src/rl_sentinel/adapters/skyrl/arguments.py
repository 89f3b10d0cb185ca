"""Build SkyRL's arguments from a batch: training batch, prompt uids, configuration, trainer object."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.codecs import Column, Labels, PromptIds, ResponseMask
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import RightAligned, ZeroPadded
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Form, Inputs
from rl_sentinel.core.errors import Unbindable

MODULE = "skyrl.backends.skyrl_train.utils.ppo_utils"
CONFIG = "skyrl.train.config.SkyRLTrainConfig"
INPUT = "skyrl.backends.skyrl_train.training_batch.TrainingInputBatch"
PRODUCER = "skyrl.train.dataset.preprocess.convert_prompts_responses_to_batch_tensors"
TRAINER = "skyrl.train.trainer.RayPPOTrainer"

#: The setting that makes each step of a trajectory a separate row.
STEP_WISE = "generator.step_wise_trajectories"

#: The lines that produce the tensors of a training batch, for ``produced_by``.
PRODUCED_BY = "skyrl/train/trainer.py, convert_to_training_input; dataset/preprocess.py for alignment and dtypes"


def with_metadata(batch: Any, metadata: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the target's class
    """The training batch with ``metadata``, which the trainer also sets after it builds the batch."""
    batch.metadata = dict(metadata)
    return batch


@dataclass(frozen=True, slots=True)
class Arguments:
    """How a release's trainer lays out its tensors; found from its code, not from its version number.

    Attributes:
        form: the layout of one number per token.
        last_step_is_metadata: whether the last steps of trajectories are in the batch's metadata, not in a tensor.
        reward_key: the key of the rewards per token.
    """

    form: Form
    last_step_is_metadata: bool
    reward_key: str = "rewards"

    def column(self, name: str) -> Column:
        """A column of one number per token."""
        return Column(name, self.form)

    @property
    def loss_mask(self) -> Column:
        """The mask of trained tokens, as float32."""
        return Column("mask", self.form, torch.float32)

    @property
    def response_mask(self) -> ResponseMask:
        """The mask of response tokens, as int64."""
        return ResponseMask(self.form, torch.int64)

    @property
    def rewards(self) -> TokenRewards:
        """Rewards per token, with the outcome added at the last response token."""
        return TokenRewards(self.form)

    def training_input(self, *columns: str, step_wise: bool = False) -> Object:
        """The training batch before advantages are computed.

        Of ``values``, ``action_log_probs`` and ``base_action_log_probs``, those not in ``columns`` are None. With
        ``step_wise``, each row says whether it is the last step of its trajectory.
        """
        names = {"values": "value", "action_log_probs": "old_logprob", "base_action_log_probs": "ref_logprob"}
        tensors: dict[str, Codec] = {
            "response_mask": self.response_mask,
            "loss_mask": self.loss_mask,
            self.reward_key: self.rewards,
            **{key: self.column(names[key]) if key in columns else Constant(None) for key in names},
        }
        metadata: dict[str, Codec] = {
            "uids": UIDS,
            "avg_response_length": Derived(lambda inputs: float(inputs.batch.length.float().mean())),
        }
        if step_wise and self.last_step_is_metadata:
            metadata["is_last_step"] = Labels("last_step")
        elif step_wise:
            tensors["is_last_step"] = Column("last_step")
        return self.batch(tensors, metadata)

    def batch(self, tensors: Mapping[str, Codec], metadata: Mapping[str, Codec]) -> Object:
        """A training batch of these tensors and this metadata."""
        batch = Object(INPUT, {"0": Table(tensors)}, {"0": ""})
        return Object(with_metadata, {"batch": batch, "metadata": Table(metadata)}, {"batch": ""})


#: One uid per row, equal for the responses of one prompt.
UIDS = PromptIds("strings-list")


def arguments(target: Target) -> Arguments:
    """Find the layout in this release: call the producer on two responses of unequal length, and read the trainer.

    Raises:
        Unbindable: if the producer or the trainer is absent, or if the producer returns no tensor in a known layout.
    """
    tokenizer = SimpleNamespace(pad_token_id=0)
    takes_id = "pad_token_id" in inspect.signature(target.find(PRODUCER)).parameters
    padding = tokenizer.pad_token_id if takes_id else tokenizer
    tensors = target.call(PRODUCER, padding, [[1], [1]], [[1, 1], [1]], [[0.0, 1.0], [1.0]], [[1, 1], [1]])
    masks = [x for x in tensors if isinstance(x, torch.Tensor) and x.shape == (2, 2) and x.dtype == torch.float]
    if not masks:
        raise Unbindable(f"{PRODUCER} returned no float tensor of shape (2, 2), expected rewards or loss masks")
    form: Form = RightAligned() if bool(masks[0][1, 1] != 0) else ZeroPadded()
    source = inspect.getsource(target.find(f"{TRAINER}.compute_advantages_and_returns"))
    key = "custom_rewards" if 'data["custom_rewards"]' in source else "rewards"
    return Arguments(form, 'metadata["is_last_step"]' in source, key)


def all_ones(inputs: Inputs) -> torch.Tensor:
    """Ones for a prompt of one token and the padded response, ``[B, 1 + T]``, for code that counts tokens."""
    return torch.ones(inputs.batch.rows, 1 + inputs.batch.width + inputs.layout.extra, dtype=torch.int64)


def algorithm(**fixed: Any) -> Config:  # noqa: ANN401 - plain values
    """The algorithm section of the configuration, with these fields set."""
    return Config(CONFIG, {f"trainer.algorithm.{k}": v for k, v in fixed.items()}, section="trainer.algorithm")


def config(settings: Settings, fixed: Settings | None = None) -> Config:
    """The whole configuration; the names of ``settings`` are dotted paths in the configuration."""
    return Config(CONFIG, fixed or {}, {path: path for path in settings})


def trainer(settings: Settings, **more: Codec) -> Object:
    """A fake ``self`` for a method of the trainer; other attributes raise AttributeError."""
    parts: dict[str, Codec] = {"cfg": config(settings), "all_metrics": Table({}), **more}
    return Object("types.SimpleNamespace", parts)


def steps_in_order(inputs: Inputs) -> str:
    """The reason to skip a batch with a trajectory that is not contiguous or has a wrong last step; else empty."""
    batch = inputs.batch
    ends = torch.ones_like(batch.last_step)
    ends[:-1] = batch.trajectory[1:] != batch.trajectory[:-1]
    whole = len(torch.unique_consecutive(batch.trajectory)) == len(set(batch.trajectory.tolist()))
    in_order = whole and torch.equal(ends, batch.last_step)
    return "" if in_order else "the steps of a trajectory are not consecutive, or do not end with its last step"
