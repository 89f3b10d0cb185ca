"""Arguments of SkyRL: responses in a training batch, a uid per prompt, one configuration."""

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

#: A setting of the configuration, under its own dotted path.
STEP_WISE = "generator.step_wise_trajectories"

#: What cites the form of every tensor of a training batch.
PRODUCED_BY = "skyrl/train/trainer.py, convert_to_training_input; dataset/preprocess.py for alignment and dtypes"


def with_metadata(batch: Any, metadata: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the target's class
    """A training batch with its metadata, which the trainer sets after it was made."""
    batch.metadata = dict(metadata)
    return batch


@dataclass(frozen=True, slots=True)
class Arguments:
    """The forms in which a release's trainer passes things: found out by asking its own code, not by its number."""

    form: Form
    last_step_is_metadata: bool

    def column(self, name: str) -> Column:
        """A column per token."""
        return Column(name, self.form)

    @property
    def loss_mask(self) -> Column:
        """Trained tokens, as float."""
        return Column("mask", self.form, torch.float32)

    @property
    def response_mask(self) -> ResponseMask:
        """Response tokens, as int64."""
        return ResponseMask(self.form, torch.int64)

    @property
    def rewards(self) -> TokenRewards:
        """Token rewards, the outcome on the last token."""
        return TokenRewards(self.form)

    def training_input(self, *columns: str, step_wise: bool = False) -> Object:
        """The training batch before advantages: masks, rewards, and the named tensors; others are absent.

        Values are None without a critic.
        """
        names = {"values": "value", "action_log_probs": "old_logprob", "base_action_log_probs": "ref_logprob"}
        tensors: dict[str, Codec] = {
            "response_mask": self.response_mask,
            "loss_mask": self.loss_mask,
            "rewards": self.rewards,
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
        """A training batch of tensors, with metadata."""
        made = Object(INPUT, {"0": Table(tensors)}, {"0": ""})
        return Object(with_metadata, {"batch": made, "metadata": Table(metadata)}, {"batch": ""})


#: One uid per row, equal for the responses of one prompt.
UIDS = PromptIds("strings-list")


def arguments(target: Target) -> Arguments:
    """Find out how this release lays out responses: its own producer is called on two of unequal length.

    Raises:
        Unbindable: if the producer is absent or answers in an unknown form.
    """
    tokenizer = SimpleNamespace(pad_token_id=0)
    takes_id = "pad_token_id" in inspect.signature(target.find(PRODUCER)).parameters
    padding = tokenizer.pad_token_id if takes_id else tokenizer
    answer = target.call(PRODUCER, padding, [[1], [1]], [[1, 1], [1]], [[0.0, 1.0], [1.0]], [[1, 1], [1]])
    masks = [
        one for one in answer if isinstance(one, torch.Tensor) and one.shape == (2, 2) and one.dtype == torch.float
    ]
    if not masks:
        raise Unbindable(f"{PRODUCER} gives no float tensor with a row per response, expected rewards or loss masks")
    form: Form = RightAligned() if bool(masks[0][1, 1] != 0) else ZeroPadded()
    source = inspect.getsource(target.find(f"{TRAINER}.compute_advantages_and_returns"))
    return Arguments(form, 'metadata["is_last_step"]' in source)


def one_per_token(inputs: Inputs) -> torch.Tensor:
    """A 1 at each position of a prompt of one token and a padded response, for code that counts tokens."""
    return torch.ones(inputs.batch.rows, 1 + inputs.batch.width + inputs.layout.extra, dtype=torch.int64)


def algorithm(**fixed: Any) -> Config:  # noqa: ANN401 - plain values
    """The algorithm section of the configuration, with fields set."""
    return Config(CONFIG, {f"trainer.algorithm.{k}": v for k, v in fixed.items()}, section="trainer.algorithm")


def config(settings: Settings, fixed: Settings | None = None) -> Config:
    """The whole configuration; settings have their own dotted paths as names."""
    return Config(CONFIG, fixed or {}, {path: path for path in settings})


def trainer(settings: Settings, **more: Codec) -> Object:
    """What a method of the trainer asks of its object; any other attribute raises its name."""
    parts: dict[str, Codec] = {"cfg": config(settings), "all_metrics": Table({}), **more}
    return Object("types.SimpleNamespace", parts)


def steps_in_order(inputs: Inputs) -> str:
    """Steps of a trajectory stand together, the last one last: the trainer counts trajectories by their last steps."""
    batch = inputs.batch
    ends = torch.ones_like(batch.last_step)
    ends[:-1] = batch.trajectory[1:] != batch.trajectory[:-1]
    whole = len(torch.unique_consecutive(batch.trajectory)) == len(set(batch.trajectory.tolist()))
    sound = whole and torch.equal(ends, batch.last_step)
    return "" if sound else "steps of a trajectory do not stand together, its last step last"
