"""Build AReaL's arguments from a batch: padded sequences for the actor, packed sequences for losses, configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import Column, FormCodec
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import group_sizes
from rl_sentinel.adapters.kit.sequences import AttentionMask, FullSequence, PackedSequence, TokenVersions
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants, knobs
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs, Sizes

ACTOR = "areal.trainer.ppo.actor.PPOActor"
CRITIC = "areal.trainer.ppo.critic.PPOCritic"
CONFIG = "areal.api.cli_args.PPOActorConfig"
NORM = "areal.api.cli_args.NormConfig"
REJECTION = "areal.api.cli_args.RejectionSamplingConfig"
MICRO_BATCH_SPEC = "areal.api.cli_args.MicroBatchSpec"

#: The lines that produce the tensors of a rollout, for ``produced_by``.
ROLLOUT = (
    "areal/workflow/rlvr.py, arun_episode: int32 tokens, masks and versions, float32 log-probs, prompt and response in "
    "one row; areal/utils/data.py, concat_padded_tensors: padded with 0 to the longest sequence"
)
#: The lines that produce the tensors of a loss, for ``produced_by``.
PACKED = (
    "areal/engine/fsdp_engine.py, _compute_logprobs_and_loss: log-probs and data of packed sequences; "
    "areal/trainer/ppo/actor.py, grpo_loss_fn: loss_mask.bool(), position t is about token t + 1"
)

#: The model's output at positions that predict no response token: arbitrary, since these positions do not train.
OTHER_LOGPROB, OTHER_VALUE = -0.5, 0.25

#: AReaL's configuration of a split into the layout's number of micro-batches.
SPLIT = Object(MICRO_BATCH_SPEC, {"n_mbs": MICRO_BATCHES})


@dataclass(frozen=True, slots=True)
class TurnIds(FormCodec):
    """``turn_ids``: the index of the turn that sampled each token, from 0; -1 at tokens that no model sampled.

    Producer: areal/experimental/openai/types.py, to_tensor_dict: a turn's id is one above its parent's largest.
    """

    form: FullSequence = field(default_factory=lambda: FullSequence(fill=-1.0))

    @property
    def columns(self) -> frozenset[str]:
        """The turns, and which tokens are trained."""
        return frozenset({"turn", "mask"})

    def put(self, inputs: Inputs) -> Tensor:
        """The turns of each row, padded with 0."""
        return self.form.lay_out(_turn_ids(inputs.batch).to(torch.int32), inputs)

    @override
    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        return {"turn": self.form.read(value, sizes).long()} if sizes.has(self.form.needs) else {}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The turns, numbered from 0 in each row, with 0 in the padding."""
        return {"turn": self.form.canonical(_turn_ids(batch), batch)}


def _turn_ids(batch: Batch) -> Tensor:
    """``[B, T]``: the index of a trained token's turn within its row, in order; -1 at other tokens."""
    ids = torch.full_like(batch.turn, -1)
    for row, trained in enumerate(batch.mask):
        if bool(trained.any()):
            ids[row, trained] = torch.unique(batch.turn[row, trained], return_inverse=True)[1]
    return ids


def rollout(*more: str) -> Table:
    """The data of ``_compute_advantages``: a rollout, and the model outputs named by ``more``."""
    passes = {
        "ref_logp": Column("ref_logprob", FullSequence(shift=1, fill=OTHER_LOGPROB), torch.float32),
        "values": Column("value", FullSequence(shift=1, fill=OTHER_VALUE), torch.float32),
        "turn_ids": TurnIds(),
    }
    return Table(
        {
            "input_ids": Column("token", FullSequence(), torch.int32),
            "attention_mask": AttentionMask(),
            "loss_mask": Column("mask", FullSequence(), torch.int32),
            "versions": TokenVersions(),
            "rewards": Column("reward", PerRow()),
            "logprobs": Column("old_logprob", FullSequence(), torch.float32),
            **{name: passes[name] for name in more},
        }
    )


def packed(column: str) -> Column:
    """A packed column of a loss, at the position that predicts each token; masks are bool."""
    model = column in {"logprob", "old_logprob", "rollout_logprob"}
    return Column(column, PackedSequence(shift=1, fill=OTHER_LOGPROB if model else 0.0))


@dataclass(frozen=True, slots=True)
class GroupSize(Codec):
    """``group_size``: the number of responses that a run samples per prompt; a prompt may have fewer."""

    @property
    @override
    def columns(self) -> frozenset[str]:
        return frozenset({"group"})

    @override
    def put(self, inputs: Inputs) -> int:
        return largest_group(inputs)

    @override
    def take(self, value: int, sizes: Sizes) -> Mapping[str, Tensor]:
        return {} if sizes.rows is None else {"group": torch.arange(sizes.rows) // value}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """Groups of the size of the largest group; the last one may be smaller."""
        return self.take(self.put(Inputs(batch)), Sizes(rows=batch.rows))


def norm(settings: Settings, which: str, group_size: Codec | None = None) -> Object:
    """AReaL's configuration of a normalization; ``which`` (``reward`` or ``adv``) is the prefix of its settings."""
    mean, std = settings[f"{which} mean"], settings[f"{which} std"]
    parts: dict[str, Codec] = constants(mean_level=mean, std_level=std)
    if settings.get(f"{which} leave1out"):
        parts["mean_leave1out"] = Constant(value=True)
    if "group" in (mean, std):
        parts["group_size"] = GroupSize() if group_size is None else group_size
    return Object(NORM, parts)


def largest_group(inputs: Inputs) -> int:
    """The size of the largest group: the number of responses that the run samples per prompt."""
    return max(group_sizes(inputs), default=1)


def actor(settings: Settings, group_size: Codec | None = None) -> Object:
    """AReaL's actor with AReaL's configuration class, without an engine."""
    parts: dict[str, Codec] = {key: Knob(key) for key in settings if " " not in key and key != "critic"}
    parts |= {
        f"{which}_norm": norm(settings, which, group_size) for which in ("reward", "adv") if f"{which} mean" in settings
    }
    config = Object(CONFIG, parts)
    return Object(ACTOR, {"config": config, "engine": Constant(None)}, shared=True)


def rejection(settings: Settings) -> Object:
    """AReaL's configuration of rejection sampling."""
    return Object(REJECTION, knobs(*settings), shared=True)


def knob(name: str, value: object) -> str:
    """The name of a setting, with its value, in AReaL's configuration."""
    which, _, statistic = name.partition(" ")
    fields: Mapping[str, str] = {"mean": "mean_level", "std": "std_level", "leave1out": "mean_leave1out"}
    return f"actor.{which}_norm.{fields[statistic]}={value}" if statistic else f"actor.{name}={value}"


def unfinished_are_longest(inputs: Inputs) -> str:
    """The reason to skip a batch where a response is longer than a response without EOS; empty otherwise.

    A response without EOS ends at max_new_tokens, so none can be longer.
    """
    batch = inputs.batch
    short = ~batch.scored & (batch.length < batch.length.max())
    return (
        "a response without EOS is shorter than another response, but it must have max_new_tokens tokens"
        if bool(short.any())
        else ""
    )


def padded_to_longest(inputs: Inputs) -> str:
    """The reason to skip a layout with padding beyond the longest sequence (AReaL adds none); empty otherwise."""
    return (
        "the layout has more padding, but AReaL pads only to the longest sequence of a batch"
        if inputs.layout.extra
        else ""
    )
