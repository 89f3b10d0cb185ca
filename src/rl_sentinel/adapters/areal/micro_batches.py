"""AReaL's micro-batches: its engines split padded sequences, pack each part and pad it for the model."""

from collections.abc import Callable, Iterator, Mapping
from inspect import getsource, signature
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import MICRO_BATCH_SPEC, ROLLOUT, padded_to_longest, rollout
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import Cast, PerRow
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

DATA = "areal.utils.data"
FUNCTIONS = tuple(
    f"{DATA}.{name}" for name in ("split_padded_tensor_dict_into_mb_list", "pack_tensor_dict", "pad_mb_list")
)
#: Name -> settings: several micro-batches; one, padded to its maximum; sequence starts aligned to a multiple; images.
FAMILIES: Mapping[str, Settings] = {
    "number": {"pad_to_maximum": False},
    "filled": {"pad_to_maximum": True},
    "aligned": {"pad_to_maximum": False, "seq_align_to": 2},
    "images": {"pad_to_maximum": False, "images": True},
}

#: The images of sequences: a list with a dict per sequence. Revisions without images do not have this key.
IMAGES = "multi_modal_input"

_CALLER = (
    "areal/engine/fsdp_engine.py, _prepare_mb_list: split_padded_tensor_dict_into_mb_list, pack_tensor_dict of each, "
    "pad_mb_list with pad_value 0 and pad_to_maximum of the configuration; areal/engine/megatron_engine.py: "
    "seq_align_to, the product of its parallel sizes"
)

#: Output -> its key in the data.
KEYS: Mapping[str, str] = {"old_logprob": "logprobs", "token": "input_ids", "mask": "loss_mask", "version": "versions"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary for each entry of :data:`FAMILIES` that the release supports."""
    if not all(target.has(path) for path in FUNCTIONS):
        return
    known = () if target.fails(FUNCTIONS[-1]) else signature(target.find(FUNCTIONS[-1])).parameters
    for name, settings in FAMILIES.items():
        sees = "images" not in settings or "multi_modal" in getsource(target.find(FUNCTIONS[0]))
        if sees and ("seq_align_to" in known or "seq_align_to" not in settings):
            yield from bindable(target, _micro_batches(name, settings))


def packed_sequences(  # noqa: PLR0913 - functions of the target, and their arguments
    split: Callable[..., Any],
    pack: Callable[..., Any],
    pad: Callable[..., Any],
    data: dict[str, Any],
    spec: Any,  # noqa: ANN401 - AReaL's specification of micro-batches
    pad_to_maximum: bool,  # noqa: FBT001 - as AReaL's configuration has it
    seq_align_to: int | None = None,
    images: bool = False,  # noqa: FBT001, FBT002 - a setting
) -> dict[str, Any]:
    """Split, pack and pad a batch; return the model's sequences without padding, in batch order, and their number.

    With ``images``, every second sequence has an image. ``others`` is 1 for a sequence that comes with the images of
    another one, or without its own.
    """
    own = [{"pixel_values": torch.tensor([[row + 1.0]])} if row % 2 else {} for row in range(len(data["input_ids"]))]
    parts = split({**data, IMAGES: own} if images else data, spec)
    # By subscript: the tensordicts of the first revisions return plain dicts only so.
    seen = [one for part in parts.mbs if IMAGES in part for one in part[IMAGES]]
    parts.mbs = [pack(part) for part in parts.mbs]
    aligned = {} if seq_align_to is None else {"seq_align_to": seq_align_to}
    padded = pad(parts, pad_value=0.0, pad_to_maximum=pad_to_maximum, **aligned)
    sequences: dict[str, list[Tensor]] = {key: [] for key in KEYS.values()}
    total = 0
    for n, part in enumerate(padded.padded_mbs):
        ends = part["cu_seqlens"].tolist()
        count = len(ends) - 1 - (padded.padding_lengths[n] > 0)
        lengths = parts.mbs[n]["cu_seqlens"].diff().tolist()
        total += count
        for key, rows in sequences.items():
            rows += [part[key][start : start + size] for start, size in zip(ends, lengths, strict=False)]
    order = padded.backward_indices
    others = [
        float(len(seen) != len(own) or _number(seen[place]) != _number(own[row])) for row, place in enumerate(order)
    ]
    found = {"sequences": total, "others": others if images else [0.0] * len(own)}
    return found | {key: [rows[place] for place in order] for key, rows in sequences.items()}


def _number(image: Mapping[str, Tensor]) -> float:
    """The number that the images of a sequence encode; 0 if it has none."""
    return float(image["pixel_values"].sum()) if "pixel_values" in image else 0.0


def _micro_batches(name: str, settings: Settings) -> Boundary:
    spec = Object(
        MICRO_BATCH_SPEC,
        {
            "n_mbs": MICRO_BATCHES,
            "max_tokens_per_mb": Derived(_tokens) if settings["pad_to_maximum"] else Constant(None),
        },
    )
    names = ("split", "pack", "pad")
    result, form = Use("packed"), RaggedSequence()
    outputs = {
        column: Output("B T", "", column, at=result[key], form=Cast(form, torch.bool) if column == "mask" else form)
        for column, key in KEYS.items()
    }
    if settings.get("images"):
        others = Output("B", "samples", "columns_of_others", at=result["others"], form=PerRow("list"))
        outputs["images of other sequences"] = others
    return one_call(
        path=" -> ".join(FUNCTIONS),
        stage="batch",
        call=packed_sequences,
        name="packed",
        arguments={
            **functions(**dict(zip(names, FUNCTIONS, strict=True))),
            "data": Table(rollout().parts),
            "spec": spec,
            "pad_to_maximum": Knob("pad_to_maximum"),
            "seq_align_to": IfSet("seq_align_to"),
            "images": Knob("images", default=False),
        },
        produced_by={"data": f"{ROLLOUT}; {_CALLER}"},
        unused=frozenset({"reward", "prompt_length"}),
        outputs=outputs | {"sequences": Output("", "count", "rows", at=result["sequences"])},
        settings={name: settings},
        claims=claims(
            "utils/data.py, pad_packed_tensor_dict: a new sequence filled with pad_value at the end, where padding is "
            "needed; split_padded_tensor_dict_into_mb_list: backward_indices restore the order",
            conserves=True,
            packs=True,
        ),
        reach="actor.mb_spec, actor.pad_to_maximum; images: a workflow such as workflow/vision_rlvr.py",
        requires=(padded_to_longest, no_empty_response),
    )


def _tokens(inputs: Inputs) -> int:
    """The number of tokens of all sequences, so that a single micro-batch can contain all sequences."""
    return int((inputs.batch.prompt_length + inputs.batch.length).sum())
