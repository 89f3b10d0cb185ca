"""AReaL's micro-batches: padded sequences are split, packed and padded for the model, as its engines do it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import ROLLOUT, padded_to_longest, rollout
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import Cast
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

DATA = "areal.utils.data"
FUNCTIONS = tuple(
    f"{DATA}.{name}" for name in ("split_padded_tensor_dict_into_mb_list", "pack_tensor_dict", "pad_mb_list")
)
SPEC = "areal.api.cli_args.MicroBatchSpec"

#: Name -> its settings: by number, filled to the last token, and with each sequence at a multiple of a length.
FAMILIES: Mapping[str, Settings] = {
    "number": {"pad_to_maximum": False},
    "filled": {"pad_to_maximum": True},
    "aligned": {"pad_to_maximum": False, "seq_align_to": 2},
}

_CALLER = (
    "areal/engine/fsdp_engine.py, _prepare_mb_list: split_padded_tensor_dict_into_mb_list, pack_tensor_dict of each, "
    "pad_mb_list with pad_value 0 and pad_to_maximum of the configuration; areal/engine/megatron_engine.py: "
    "seq_align_to, the product of its parallel sizes"
)

#: Output -> the key of the data that holds it.
KEYS: Mapping[str, str] = {"old_logprob": "logprobs", "token": "input_ids", "mask": "loss_mask", "version": "versions"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The micro-batches of a batch, by each way to fill them."""
    if all(target.has(path) for path in FUNCTIONS):
        yield from bindable(target, *(_micro_batches(name, settings) for name, settings in FAMILIES.items()))


def packed_sequences(  # noqa: PLR0913 - the functions, and what they are passed
    split: Callable[..., Any],
    pack: Callable[..., Any],
    pad: Callable[..., Any],
    data: dict[str, Any],
    spec: Any,  # noqa: ANN401 - AReaL's specification of micro-batches
    pad_to_maximum: bool,  # noqa: FBT001 - as AReaL's configuration has it
    seq_align_to: int | None = None,
) -> dict[str, Any]:
    """The sequences of a batch as a model gets them, in the order of the batch, without the padding."""
    split_up = split(data, spec)
    split_up.mbs = [pack(one) for one in split_up.mbs]
    aligned = {} if seq_align_to is None else {"seq_align_to": seq_align_to}
    padded = pad(split_up, pad_value=0.0, pad_to_maximum=pad_to_maximum, **aligned)
    sequences: dict[str, list[Tensor]] = {key: [] for key in KEYS.values()}
    found = 0
    for n, part in enumerate(padded.padded_mbs):
        ends = part["cu_seqlens"].tolist()
        count = len(ends) - 1 - (padded.padding_lengths[n] > 0)
        lengths = split_up.mbs[n]["cu_seqlens"].diff().tolist()
        found += count
        for key, rows in sequences.items():
            rows += [part[key][start : start + size] for start, size in zip(ends, lengths, strict=False)]
    rows_at = padded.backward_indices
    return {"sequences": found} | {key: [rows[place] for place in rows_at] for key, rows in sequences.items()}


def _micro_batches(name: str, settings: Settings) -> Boundary:
    spec = Object(
        SPEC,
        {
            "n_mbs": Derived(lambda inputs: inputs.layout.micro_batches, frozenset({"micro_batches"})),
            "max_tokens_per_mb": Derived(_tokens) if settings["pad_to_maximum"] else Constant(None),
        },
    )
    names = ("split", "pack", "pad")
    step = Step(
        call=packed_sequences,
        name="packed",
        arguments={
            **{one: Constant(Function(path)) for one, path in zip(names, FUNCTIONS, strict=True)},
            "data": Table(rollout().parts),
            "spec": spec,
            "pad_to_maximum": Knob("pad_to_maximum"),
            "seq_align_to": IfSet("seq_align_to"),
        },
        produced_by={"data": f"{ROLLOUT}; {_CALLER}"},
    )
    result, form = Use("packed"), RaggedSequence()
    outputs = {
        column: Output("B T", "", column, at=result[key], form=Cast(form, torch.bool) if column == "mask" else form)
        for column, key in KEYS.items()
    }
    return Boundary(
        path=" -> ".join(FUNCTIONS),
        stage="batch",
        steps=(step,),
        unused=frozenset({"reward", "prompt_length"}),
        outputs=outputs | {"sequences": Output("", "count", "rows", at=result["sequences"])},
        settings={name: settings},
        claims=claims(
            "utils/data.py, pad_packed_tensor_dict: a new sequence filled with pad_value at the end, where padding is "
            "needed; split_padded_tensor_dict_into_mb_list: backward_indices restore the order",
            conserves=True,
            packs=True,
        ),
        reach="actor.mb_spec, actor.pad_to_maximum",
        requires=(padded_to_longest, no_empty_response),
    )


def _tokens(inputs: Inputs) -> int:
    """The tokens of all sequences: one micro-batch of this size has no room left."""
    return int((inputs.batch.prompt_length + inputs.batch.length).sum())
