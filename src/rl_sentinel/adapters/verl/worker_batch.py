"""The batch that verl's trainer before 0.8 passes to a data-parallel worker, and replacements for its accelerator."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import AfterPrompt
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK
from rl_sentinel.adapters.verl.doubles import cpu_device, no_memory, return_unmoved
from rl_sentinel.core.codec import Codec, Inputs

#: Rows of a micro-batch: the mini-batch is cut evenly.
MICRO_BATCH = Derived(lambda inputs: inputs.batch.rows // inputs.layout.micro_batches, frozenset({"micro_batches"}))

#: Sizes of the batches of an update: one mini-batch, cut into micro-batches.
SIZES: Mapping[str, Codec] = {
    "ppo_mini_batch_size": Derived(lambda inputs: inputs.batch.rows),
    "ppo_micro_batch_size_per_gpu": MICRO_BATCH,
    "use_dynamic_bsz": Constant(value=False),
}


def by_tokens() -> dict[str, Codec]:
    """Whether micro-batches are of at most so many tokens, by the setting; how many these are."""
    return {
        "use_dynamic_bsz": Knob("use_dynamic_bsz", default=False),
        "ppo_max_token_len_per_gpu": Derived(_longest, frozenset({"extra"})),
    }


def passes(*, dynamic: bool) -> dict[str, Codec]:
    """Sizes of the micro-batches of a pass without gradients: of equal rows, or of at most so many tokens."""
    return {
        "use_dynamic_bsz": Constant(dynamic),
        "micro_batch_size": Constant(1) if dynamic else MICRO_BATCH,
        "max_token_len": Derived(_longest, frozenset({"extra"})),
    }


def _longest(inputs: Inputs) -> int:
    """The fewest tokens of a micro-batch that verl accepts: those of one padded row."""
    return 1 + inputs.batch.width + inputs.layout.extra


def reads_response_mask(source: str) -> bool:
    """Whether a worker's function takes the trained tokens from the batch; before, it trains all response tokens."""
    return re.search(r"""\[["'](response|loss)_mask["']\]""", source) is not None


def accelerator(target: Target, module: str, source: str) -> dict[str, Callable[..., Any]]:
    """Doubles of a machine without an accelerator: its device, moves there, and what is logged of its memory."""
    doubles: dict[str, Callable[..., Any]] = {}
    if "get_device_id()" in source:
        doubles[f"{module}.get_device_id"] = cpu_device
    if "torch.cuda.current_device()" in source:
        doubles[f"{module}.torch.cuda.current_device"] = cpu_device
    if ".cuda()" in source:
        doubles["verl.protocol.TensorDict.cuda"] = return_unmoved
    for path in ("verl.utils.debug.performance", "verl.utils.profiler.performance"):
        if target.has(f"{path}._get_current_mem_info"):
            doubles[f"{path}._get_current_mem_info"] = no_memory
    return doubles


def sequences() -> dict[str, Codec]:
    """Prompts of one token, the number of the row, and responses."""
    return {
        "input_ids": Derived(_row_numbers, frozenset({"extra"})),
        "attention_mask": ResponseMask(AfterPrompt(1)),
        "position_ids": Derived(_positions, frozenset({"extra"})),
    }


def worker_data(tensors: Mapping[str, Codec], **meta: Codec) -> Object:
    """The trainer's batch of prompts and responses with further tensors; ``meta`` is what the worker adds to it."""
    responses: dict[str, Codec] = {
        "responses": Column("token"),
        **sequences(),
        "response_mask": MASK,
        "loss_mask": Column("mask", AfterPrompt(0), torch.int64),
    }
    parts: dict[str, Codec] = {"tensors": Table({**responses, **tensors}), "meta_info": Table(meta)}
    return Object("verl.DataProto.from_dict", parts, at={"tensors": "batch", "meta_info": "meta_info"})


def _row_numbers(inputs: Inputs) -> torch.Tensor:
    """Token ids of a prompt of one token, the number of the row, and of a response of zeros."""
    rows = torch.arange(inputs.batch.rows).unsqueeze(1)
    return torch.nn.functional.pad(rows, (0, inputs.batch.width + inputs.layout.extra))


def _positions(inputs: Inputs) -> torch.Tensor:
    """Positions of a prompt of one token, the response and its padding."""
    width = 1 + inputs.batch.width + inputs.layout.extra
    return torch.arange(width).expand(inputs.batch.rows, -1)
