"""Codecs of verl's arguments: right-padded tensors, a uid per prompt, ``DataProto``, configuration sections."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rl_sentinel.adapters.kit.codecs import Column, PromptIds, ResponseMask
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import AfterPrompt, ZeroPadded
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Derived
from rl_sentinel.adapters.source_reads import remembered
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.codec import Codec, Inputs

#: Masks are integers: ray_trainer.py, compute_response_mask slices them from the attention mask.
MASK = Column("mask", dtype=torch.int64)
MASK_PRODUCER = "verl/trainer/ppo/ray_trainer.py, compute_response_mask; with tools, the agent loop's response_mask"

#: One uid string per row, equal for the responses of one prompt.
UIDS = PromptIds("strings")

#: Role of a parameter -> its codec.
ROLES: Mapping[str, Codec] = {
    "token_rewards": TokenRewards(),
    "mask": MASK,
    "group": UIDS,
    "reward_baseline": Column("reward_baseline"),
    "old_logprob": Column("old_logprob"),
    "logprob": Column("logprob"),
    "ref_logprob": Column("ref_logprob"),
    "pi_squared": Column("pi_squared"),
    "advantage": Column("advantage"),
    "returns": Column("returns"),
}

#: Tensors that the policy loss of an actor reads, besides tokens and masks.
POLICY_TENSORS: Mapping[str, Codec] = {
    "old_log_probs": Column("old_logprob"),
    "ref_log_prob": Column("ref_logprob"),
    "advantages": Column("advantage"),
}

#: The critic before 0.8.
_CRITIC = "verl/workers/critic/dp_critic.py"

#: The attention mask of the positions *before* the response's tokens: it keeps one value after the response.
_MASK_BEFORE = re.compile(r"attention_mask\[:, -response_length - 1 ?: ?-1\]")

ALGORITHM = "verl.trainer.config.AlgoConfig"


def algorithm(target: Target, **parts: Codec) -> Codec:
    """The algorithm section of the configuration: verl's class, or OmegaConf in releases without the class."""
    if target.has(ALGORITHM):
        return Object(ALGORITHM, parts, shared=True)
    return section(parts, shared=True)


def section(parts: Mapping[str, Codec], *, shared: bool = False) -> Object:
    """A section of an OmegaConf configuration."""
    return Object("omegaconf.OmegaConf.create", {"0": Table(parts)}, {"0": ""}, shared)


def data_proto(tensors: Mapping[str, Codec], labels: Mapping[str, Codec] | None = None) -> Object:
    """A ``DataProto`` of tensors and labels."""
    parts: dict[str, Codec] = {
        "tensors": Table(tensors),
        "non_tensors": Table(labels or {}),
        "meta_info": Derived(lambda _inputs: {}),
    }
    return Object("verl.DataProto.from_dict", parts, at={"tensors": "batch", "non_tensors": "non_tensor_batch"})


def trainer_data(target: Target, entered: str, **more: Codec) -> Object:
    """The trainer's batch with rewards and ``more`` tensors.

    ``entered`` is the function that reads the mask of trained tokens, or empty. If it reads only the attention mask,
    the batch has no other mask.
    """
    knows_mask = not entered or knows_response_mask(target, entered)
    masks: dict[str, Codec] = {"attention_mask": ResponseMask(AfterPrompt(1))}
    if knows_mask:
        masks |= {"response_mask": MASK, "loss_mask": Column("mask", AfterPrompt(0), torch.int64)}
    tensors: dict[str, Codec] = {
        "token_level_rewards": TokenRewards(),
        "token_level_scores": TokenRewards(),
        "prompts": Derived(lambda inputs: torch.ones(inputs.batch.rows, 1, dtype=torch.int64)),
        "responses": Column("token"),
        **masks,
        **more,
    }
    return data_proto(tensors, {"uid": UIDS})


def critic_values(target: Target) -> Column:
    """The critic's values: 0 in the padding, except in releases whose critic keeps the value after a response.

    Producers: dp_critic.py, ``compute_values``, multiplies by the response's mask; workers/utils/padding.py,
    ``no_padding_2_padding``, pads with 0.
    """
    critic = target.root / _CRITIC
    keeps = critic.is_file() and _MASK_BEFORE.search(critic.read_text(encoding="utf-8"))
    return Column("value") if keeps else Column("value", ZeroPadded())


def every_token_is_trained(inputs: Inputs) -> str:
    """The reason to skip a batch with an untrained response token; empty otherwise.

    For code whose mask is made from the attention mask, so that it trains every response token.
    """
    whole = torch.equal(inputs.batch.mask, inputs.batch.valid)
    return "" if whole else "this code trains every response token: its mask is made from the attention mask"


def knows_response_mask(target: Target, path: str) -> bool:
    """Whether a function reads the mask of trained tokens from ``response_mask`` or ``loss_mask``."""
    return _names_a_mask(inspect.unwrap(target.find(path)))


@remembered
def _names_a_mask(function: Callable[..., Any]) -> bool:
    """Whether the source names a mask; cached, because ``getsource`` is slow."""
    source = inspect.getsource(function)
    return any(word in source for word in ('["response_mask"]', "['response_mask']", '["loss_mask"]'))
