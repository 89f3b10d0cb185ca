"""The batch that verl's trainer before 0.8 passes to a worker, and fakes for the worker's accelerator."""

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
from rl_sentinel.adapters.verl.fakes import cpu_device, no_memory, return_unmoved
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs

#: Rows of a micro-batch; the mini-batch is split evenly.
MICRO_BATCH = Derived(lambda inputs: inputs.batch.rows // inputs.layout.micro_batches, frozenset({"micro_batches"}))

#: Batch sizes: one mini-batch, split into micro-batches.
SIZES: Mapping[str, Codec] = {
    "ppo_mini_batch_size": Derived(lambda inputs: inputs.batch.rows),
    "ppo_micro_batch_size_per_gpu": MICRO_BATCH,
    "use_dynamic_bsz": Constant(value=False),
}

#: The setting with which a critic calls its model on padded sequences, the default until early 2026.
PADDED: Settings = {"model.use_remove_padding": False}


def update_sizes(source: str) -> dict[str, Codec]:
    """Batch sizes of an update: one mini-batch, split into micro-batches, by the names that the worker reads.

    Before 0.2, fsdp_workers.py divides ``ppo_micro_batch_size`` by the number of ranks in place.
    """
    sizes = dict(SIZES)
    if "ppo_micro_batch_size_per_gpu" not in source and "ppo_micro_batch_size" in source:
        sizes["ppo_micro_batch_size"] = sizes.pop("ppo_micro_batch_size_per_gpu")
    return sizes


def dynamic_batch_size() -> dict[str, Codec]:
    """The setting for a dynamic batch size, and its maximum number of tokens."""
    return {
        "use_dynamic_bsz": Knob("use_dynamic_bsz", default=False),
        "ppo_max_token_len_per_gpu": LONGEST,
    }


def equal_rows(batch: Batch) -> Batch:
    """Train every token of all rows, so that a mean over tokens does not depend on the split into micro-batches."""
    return with_columns(batch, mask=torch.ones_like(batch.mask), length=torch.full_like(batch.length, batch.width))


def rows_are_equal(inputs: Inputs) -> str:
    """The reason to skip a batch where rows do not fill the width, or train different numbers of tokens; else empty."""
    counts = inputs.batch.mask.sum(1)
    equal = bool((counts == counts[:1]).all()) and bool((inputs.batch.length == inputs.batch.width).all())
    return "" if equal else "rows do not fill the width, or train different numbers of tokens"


def forward_sizes(*, dynamic: bool) -> dict[str, Codec]:
    """Micro-batch sizes of a pass without gradients: a number of rows or, if ``dynamic``, a maximum of tokens."""
    return {
        "use_dynamic_bsz": Constant(dynamic),
        "micro_batch_size": Constant(1) if dynamic else MICRO_BATCH,
        "max_token_len": LONGEST,
    }


def _longest(inputs: Inputs) -> int:
    return 1 + inputs.batch.width + inputs.layout.extra


#: The smallest token limit that verl accepts: one padded row.
LONGEST = Derived(_longest, frozenset({"extra"}))


def reads_response_mask(source: str) -> bool:
    """Whether a worker reads the mask of trained tokens from the batch; other workers train all response tokens."""
    return re.search(r"""\[["'](response|loss)_mask["']\]""", source) is not None


def accelerator_fakes(target: Target, module: str, source: str) -> dict[str, Callable[..., Any]]:
    """Fakes for the accelerator: its device, copies to it, and its memory statistics."""
    fakes: dict[str, Callable[..., Any]] = {}
    if "get_device_id()" in source:
        fakes[f"{module}.get_device_id"] = cpu_device
    if "torch.cuda.current_device()" in source:
        fakes[f"{module}.torch.cuda.current_device"] = cpu_device
    if ".cuda()" in source:
        fakes["verl.protocol.TensorDict.cuda"] = return_unmoved
    if re.search(r"""\.to\(["']cuda["']\)""", source):
        fakes["verl.protocol.DataProto.to"] = return_unmoved
    for path in ("verl.utils.debug.performance", "verl.utils.profiler.performance"):
        if target.has(f"{path}._get_current_mem_info"):
            fakes[f"{path}._get_current_mem_info"] = no_memory
    return fakes


def sequences() -> dict[str, Codec]:
    """Tensors of the full sequences: a one-token prompt, which is the row index, then zeros for the response."""
    return {
        "input_ids": Derived(_row_numbers, frozenset({"extra"})),
        "attention_mask": ResponseMask(AfterPrompt(1)),
        "position_ids": Derived(_positions, frozenset({"extra"})),
    }


def worker_object(
    make: Callable[..., Any], path: str, config: Codec, outputs: Mapping[str, Codec], **at: str
) -> Object:
    """A worker that ``make`` creates from its class, its configuration and the outputs of its model.

    ``at`` overrides where the class (``kind``) and the model (``model``) of a live worker are found.
    """
    parts: dict[str, Codec] = {"0": Constant(Function(path)), "1": config, "2": Table(outputs)}
    kind, model = at.get("kind", "__class__"), at.get("model", "actor_optimizer")
    return Object(make, parts, at={"0": kind, "1": "config", "2": f"{model}.answers"})


def worker_data(tensors: Mapping[str, Codec], **meta: Codec) -> Object:
    """The trainer's batch with further ``tensors``; ``meta`` is the ``meta_info`` that the worker adds."""
    responses: dict[str, Codec] = {
        "responses": Column("token"),
        **sequences(),
        "response_mask": MASK,
        "loss_mask": Column("mask", AfterPrompt(0), torch.int64),
    }
    parts: dict[str, Codec] = {"tensors": Table({**responses, **tensors}), "meta_info": Table(meta)}
    return Object("verl.DataProto.from_dict", parts, at={"tensors": "batch", "meta_info": "meta_info"})


def _row_numbers(inputs: Inputs) -> torch.Tensor:
    """Token ids: the row index as a one-token prompt, then zeros."""
    rows = torch.arange(inputs.batch.rows).unsqueeze(1)
    return torch.nn.functional.pad(rows, (0, inputs.batch.width + inputs.layout.extra))


def _positions(inputs: Inputs) -> torch.Tensor:
    """Position ids of a one-token prompt, the response and its padding."""
    width = 1 + inputs.batch.width + inputs.layout.extra
    return torch.arange(width).expand(inputs.batch.rows, -1)
