"""Arguments of AReaL: sequences of prompt and response, padded for the actor and packed for its losses."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import group_sizes
from rl_sentinel.adapters.kit.sequences import AttentionMask, FullSequence, PackedSequence, TokenVersions
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs, Sizes

ACTOR = "areal.trainer.ppo.actor.PPOActor"
CONFIG = "areal.api.cli_args.PPOActorConfig"
NORM = "areal.api.cli_args.NormConfig"
REJECTION = "areal.api.cli_args.RejectionSamplingConfig"

#: What cites the form of every tensor of a rollout.
ROLLOUT = (
    "areal/workflow/rlvr.py, arun_episode: int32 tokens, masks and versions, float32 log-probs, prompt and response in "
    "one row; "
    "areal/utils/data.py, concat_padded_tensors: padded with 0 to the longest sequence, no further"
)
#: What cites the form of every tensor of a loss.
PACKED = (
    "areal/engine/fsdp_engine.py, _compute_logprobs_and_loss: log-probs and data of packed sequences; "
    "areal/trainer/ppo/actor.py, grpo_loss_fn: loss_mask.bool(), position t holds what belongs to token t + 1"
)

#: What a model computes at positions that belong to no response token; any number does, since none of them trains.
LOGPROB_ELSEWHERE, VALUE_ELSEWHERE = -0.5, 0.25


def rollout(*more: str) -> Table:
    """The data of ``_compute_advantages``: a rollout, and what the named passes of a model computed."""
    passes = {
        "ref_logp": Column("ref_logprob", FullSequence(shift=1, fill=LOGPROB_ELSEWHERE), torch.float32),
        "values": Column("value", FullSequence(shift=1, fill=VALUE_ELSEWHERE), torch.float32),
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
    """A column of a loss: packed, at the position that predicts the token; masks are bool."""
    model = column in {"logprob", "old_logprob", "rollout_logprob"}
    return Column(column, PackedSequence(shift=1, fill=LOGPROB_ELSEWHERE if model else 0.0))


@dataclass(frozen=True, slots=True)
class GroupSize(Codec):
    """``group_size``: the number of responses that a run asks for per prompt; a prompt may have fewer."""

    @property
    def columns(self) -> frozenset[str]:
        """Groups of consecutive rows."""
        return frozenset({"group"})

    def put(self, inputs: Inputs) -> int:
        """The size of the largest group."""
        return largest_group(inputs)

    def take(self, value: int, sizes: Sizes) -> Mapping[str, Tensor]:
        """Groups of this many rows."""
        return {} if sizes.rows is None else {"group": torch.arange(sizes.rows) // value}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """Groups as large as the largest one."""
        return self.take(self.put(Inputs(batch)), Sizes(rows=batch.rows))


def norm(settings: Settings, which: str, group_size: Codec | None = None) -> Object:
    """AReaL's configuration of one normalization; ``which`` (``reward`` or ``adv``) is the prefix of its settings."""
    mean, std = settings[f"{which} mean"], settings[f"{which} std"]
    parts: dict[str, Codec] = {"mean_level": Constant(mean), "std_level": Constant(std)}
    if settings.get(f"{which} leave1out"):
        parts["mean_leave1out"] = Constant(value=True)
    if "group" in (mean, std):
        parts["group_size"] = GroupSize() if group_size is None else group_size
    return Object(NORM, parts)


def largest_group(inputs: Inputs) -> int:
    """The number of responses that a run asks for per prompt, of which one may have fewer."""
    return max(group_sizes(inputs), default=1)


def actor(settings: Settings, group_size: Codec | None = None) -> Object:
    """The actor under AReaL's own configuration, without an engine."""
    parts: dict[str, Codec] = {key: Knob(key) for key in settings if " " not in key and key != "critic"}
    parts |= {
        f"{which}_norm": norm(settings, which, group_size) for which in ("reward", "adv") if f"{which} mean" in settings
    }
    config = Object(CONFIG, parts)
    return Object(ACTOR, {"config": config, "engine": Constant(None)}, shared=True)


def rejection(settings: Settings) -> Object:
    """AReaL's configuration of rejection sampling."""
    return Object(REJECTION, {name: Knob(name) for name in settings}, shared=True)


def knob(name: str, value: object) -> str:
    """A setting in the words of AReaL's configuration."""
    which, _, what = name.partition(" ")
    fields: Mapping[str, str] = {"mean": "mean_level", "std": "std_level", "leave1out": "mean_leave1out"}
    return f"actor.{which}_norm.{fields[what]}={value}" if what else f"actor.{name}={value}"


def unfinished_are_longest(inputs: Inputs) -> str:
    """A response without EOS is one that reached max_new_tokens, so no other response is longer."""
    batch = inputs.batch
    short = ~batch.scored & (batch.length < batch.length.max())
    return "a response without EOS is shorter than another, but max_new_tokens ends it" if bool(short.any()) else ""


def padded_to_longest(inputs: Inputs) -> str:
    """The actor takes sequences that fill the width for unfinished ones, so a spare column would finish all."""
    return "AReaL pads to the longest sequence of a batch, and no further" if inputs.layout.extra else ""
