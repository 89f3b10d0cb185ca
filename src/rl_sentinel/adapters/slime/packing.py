"""slime's packed micro-batches: tokens and loss masks, on ranks that share each sequence."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Cast, Ragged
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Derived, functions
from rl_sentinel.adapters.slime.arguments import LOSS_MASKS, MASKS, RESPONSE_LENGTHS, TOTAL_LENGTHS
from rl_sentinel.adapters.slime.samples import module_source
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

DATA = "slime.backends.megatron_utils.data"
PACK, ITERATOR = f"{DATA}.get_batch", f"{DATA}.DataIterator"

#: Setting -> ranks that share each sequence, and the way in which they do; the padding is slime's default.
SHARED: Mapping[str, Settings] = {
    "default": {"ranks": 1, "allgather_cp": False},
    "context parallel": {"ranks": 2, "allgather_cp": False},
}
GATHERED: Settings = {"ranks": 2, "allgather_cp": True}

#: The value of a position whose data is missing, or belongs to another position.
WRONG = -1

_PACKED = claims(
    "data.py, get_batch: tokens are sliced, concatenated and padded; the loss mask is aligned to the token stream, one "
    "place earlier",
    conserves=True,
)
PRODUCER = (
    f"{MASKS}; slime/backends/megatron_utils/data.py, get_data_iterator: indices of each micro-batch; "
    "slime/utils/arguments.py: --data-pad-size-multiplier, 128 by default"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the packed micro-batches."""
    if packs(target):
        yield from bindable(target, _packed(target))


def packs(target: Target) -> bool:
    """Whether the revision packs the data of an iterator. In July 2025, the data came from the process's storage."""
    if not target.has(PACK) or target.fails(PACK) or not target.has(ITERATOR):
        return False
    return "rollout_data" in inspect.signature(target.find(ITERATOR)).parameters


def settings_of(target: Target) -> Mapping[str, Settings]:
    """The settings for how ranks share sequences in this revision."""
    gathers = "allgather_cp" in inspect.signature(target.find(PACK)).parameters
    return {**SHARED, **({"context parallel, all-gather": GATHERED} if gathers else {})}


def pack_micro_batches(
    pack: Callable[..., Any],
    iterator: Callable[..., Any],
    data: dict[str, Any],
    cuts: list[list[int]],
    options: Settings,
) -> dict[str, list[Tensor]]:
    """Pack the micro-batches of all ranks, and return the tokens and loss masks of each response.

    A second call, with position numbers instead of tokens, shows where the packing puts each position. In revisions
    that pack no loss masks, the returned masks have no meaning.
    """
    numbers = place_numbers(pack, iterator, data, cuts, options)
    batches = _all_batches(pack, iterator, data, cuts, options)
    tokens, masks = (
        by_place([batch[key].flatten() for batch in batches if key in batch] or numbers, numbers, data["tokens"])
        for key in ("tokens", "full_loss_masks")
    )
    return {
        "tokens": [row[-int(n) :] for row, n in zip(tokens, data["response_lengths"], strict=True)],
        "masks": [row[-int(n) - 1 : -1] for row, n in zip(masks, data["response_lengths"], strict=True)],
    }


def unmoved(tensor: Any) -> Any:  # noqa: ANN401 - a tensor
    """Return the tensor itself, in place of a copy on the GPU."""
    return tensor


def _all_batches(
    pack: Callable[..., Any],
    iterator: Callable[..., Any],
    data: dict[str, Any],
    cuts: list[list[int]],
    options: Settings,
) -> list[dict[str, Any]]:
    """The packed micro-batches of all ranks, one rank after another."""
    wanted = {"pad_multiplier": 128, "allgather_cp": options["allgather_cp"]}
    more = {name: value for name, value in wanted.items() if name in inspect.signature(pack).parameters}
    cpu = SimpleNamespace(device=lambda: "cpu", current_device=lambda: "cpu")

    with replaced_globals(pack.__globals__, PackedSeqParams=SimpleNamespace, accelerator=cpu):
        packed = []
        for _ in each_rank(options):
            batches = iterator(data, micro_batch_indices=cuts)
            packed += [pack(batches, [*data, "multimodal_train_inputs"], **more) for _ in cuts]
        return packed


def each_rank(options: Settings) -> Iterator[int]:
    """Set the rank of this process to each rank in turn; no rank waits for another rank."""
    mpu: Any = importlib.import_module("megatron.core").mpu
    size = int(options["ranks"] or 1)
    for rank in range(size):
        size_and_rank = {
            "get_context_parallel_world_size": partial(int, size),
            "get_context_parallel_rank": partial(int, rank),
        }
        with replaced_globals(vars(mpu), **size_and_rank):
            yield rank


def place_numbers(
    pack: Callable[..., Any],
    iterator: Callable[..., Any],
    data: dict[str, Any],
    cuts: list[list[int]],
    options: Settings,
) -> list[Tensor]:
    """The packed micro-batches with position numbers (from 1) in place of tokens; padding is 0."""
    sizes = [len(row) for row in data["tokens"]]
    numbered = {**data, "tokens": list(torch.split(torch.arange(1, 1 + sum(sizes)), sizes))}
    return [batch["tokens"].flatten() for batch in _all_batches(pack, iterator, numbered, cuts, options)]


def by_place(streams: list[Tensor], numbers: list[Tensor], rows: list[Tensor]) -> list[Tensor]:
    """The values of packed streams at the positions of each row; -1 if missing, or in a stream of wrong length."""
    whole = torch.full((1 + sum(map(len, rows)),), WRONG, dtype=torch.long)
    for stream, places in zip(streams, numbers, strict=True):
        whole[places] = stream.long() if len(stream) == len(places) else WRONG
    return list(torch.split(whole[1:], [len(row) for row in rows]))


def _cuts(inputs: Inputs) -> list[list[int]]:
    parts = torch.arange(inputs.batch.rows).tensor_split(inputs.layout.micro_batches)
    return [part.tolist() for part in parts if len(part)]


def packing_arguments() -> dict[str, Codec]:
    """The arguments of :func:`pack_micro_batches`: slime's functions, a rank's data, and rows per micro-batch."""
    data = {
        "tokens": Column("token", RaggedSequence()),
        "loss_masks": LOSS_MASKS,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
    }
    return {
        **functions(pack=PACK, iterator=ITERATOR),
        "data": Table(data),
        "cuts": Derived(_cuts, frozenset({"micro_batches"})),
        "options": AllSettings(),
    }


def cpu() -> str:
    """The CPU, as the current device."""
    return "cpu"


def packing_fakes(target: Target) -> dict[str, Callable[..., Any]]:
    """Replacements for functions that move tensors to the GPU."""
    source = module_source(target, DATA)
    fakes: dict[str, tuple[str, Callable[..., Any]]] = {
        ".cuda()": ("Tensor.cuda", unmoved),
        "cuda.current_device()": ("cuda.current_device", cpu),
    }
    return {f"{DATA}.torch.{name}": fake for call, (name, fake) in fakes.items() if call in source}


def _packed(target: Target) -> Boundary:
    outputs = {"token": Output("B T", "", "token", at=Use("packed")["tokens"], form=Ragged())}
    if "full_loss_masks" in module_source(target, DATA):
        outputs["mask"] = Output("B T", "", "mask", at=Use("packed")["masks"], form=Cast(Ragged(), torch.bool))
    return one_call(
        path=PACK,
        stage="batch",
        call=pack_micro_batches,
        name="packed",
        arguments=packing_arguments(),
        fakes=packing_fakes(target),
        produced_by={"data": PRODUCER},
        outputs=outputs,
        settings=settings_of(target),
        claims=_PACKED,
        reach="every run; --context-parallel-size 2, --allgather-cp",
        requires=(no_empty_response,),
    )
