"""slime's packed micro-batches: tokens and loss masks, and the replayed experts of a mixture of experts beside them."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Cast, Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.sequences import RaggedSequence
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived
from rl_sentinel.adapters.slime.arguments import LOSS_MASKS, MASKS, RESPONSE_LENGTHS, TOTAL_LENGTHS
from rl_sentinel.adapters.slime.samples import module_source
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

DATA = "slime.backends.megatron_utils.data"
PACK, ITERATOR = f"{DATA}.get_batch", f"{DATA}.DataIterator"
ACTOR = "slime.backends.megatron_utils.actor.MegatronTrainRayActor"
REPLAY = "slime.utils.routing_replay.RoutingReplay"

#: Setting -> ranks that share each sequence, and the way in which they do; the padding is slime's default.
SHARED: Mapping[str, Settings] = {
    "default": {"ranks": 1, "allgather_cp": False},
    "context parallel": {"ranks": 2, "allgather_cp": False},
}
GATHERED: Settings = {"ranks": 2, "allgather_cp": True}

#: Layers with experts of three, of which the first is dense, and the experts per token.
_EXPERT_LAYERS, _EXPERTS_PER_TOKEN = (1, 2), 2
_LAYERS = 1 + len(_EXPERT_LAYERS)

#: What a place holds whose data is of another place.
_WRONG = -1

_PACKED = claims(
    "data.py, get_batch: tokens are sliced, concatenated and padded; the loss mask is aligned to the token stream, one "
    "place earlier",
    conserves=True,
)
_REPLAYED = claims(
    "actor.py, fill_routing_replay: the experts that the engine chose are replayed for the tokens of get_batch; the "
    "last token has none",
    conserves=True,
)
_PRODUCER = (
    f"{MASKS}; slime/backends/megatron_utils/data.py, get_data_iterator: indices of each micro-batch; "
    "slime/utils/arguments.py: --data-pad-size-multiplier, 128 by default"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The packed micro-batches, and the replayed experts in revisions that replay them."""
    if not target.has(PACK) or target.fails(PACK) or not target.has(ITERATOR):
        return
    if "rollout_data" not in inspect.signature(target.find(ITERATOR)).parameters:
        return  # in July 2025 the data came from the process's storage
    gathers = "allgather_cp" in inspect.signature(target.find(PACK)).parameters
    settings = {**SHARED, **({"context parallel, all-gather": GATHERED} if gathers else {})}
    yield from bindable(target, _packed(target, settings))
    fill = f"{ACTOR}.fill_routing_replay"
    if target.has(fill) and not target.fails(fill) and target.has(REPLAY):
        yield from bindable(target, _replayed(target, fill, settings))


def pack_micro_batches(
    pack: Callable[..., Any],
    iterator: Callable[..., Any],
    data: dict[str, Any],
    cuts: list[list[int]],
    options: Settings,
) -> dict[str, list[Tensor]]:
    """The tokens and loss masks of each response, from the packed micro-batches of all ranks.

    A second call with a number per place instead of tokens shows where each place went.
    """
    numbers = _numbers(pack, iterator, data, cuts, options)
    batches = _all_batches(pack, iterator, data, cuts, options)
    tokens, masks = (
        _by_place([batch[key].flatten() for batch in batches if key in batch] or numbers, numbers, data["tokens"])
        for key in ("tokens", "full_loss_masks")
    )
    return {
        "tokens": [row[-int(n) :] for row, n in zip(tokens, data["response_lengths"], strict=True)],
        "masks": [row[-int(n) - 1 : -1] for row, n in zip(masks, data["response_lengths"], strict=True)],
    }


def replay_experts(  # noqa: PLR0913 - functions and classes of the target
    fill: Callable[..., Any],
    actor: type,
    replay: Any,  # noqa: ANN401 - a class of the target
    pack: Callable[..., Any],
    iterator: Callable[..., Any],
    data: dict[str, Any],
    cuts: list[list[int]],
    options: Settings,
) -> list[Tensor]:
    """Each token of the responses, from the experts that are replayed at the place that predicts it.

    The experts of a place are numbers made of the next token, the layer and their rank among the experts; -1 stands for
    experts of another layer or another place.
    """
    experts = {**data, "rollout_routed_experts": [_experts(row) for row in data["tokens"]]}
    numbers = _numbers(pack, iterator, data, cuts, options)
    recorded: list[list[Tensor]] = []

    original = replay.all_routing_replays
    try:
        with _layer_counts():
            for _ in _ranks(options):
                layers = [_Recorded() for _ in _EXPERT_LAYERS]
                replay.all_routing_replays = layers
                whole = dict(experts)
                fill(_actor(actor, options), [iterator(whole, micro_batch_indices=cuts)], [len(cuts)], whole)
                recorded += [[layer.calls[n] for layer in layers] for n in range(len(cuts))]
    finally:
        replay.all_routing_replays = original
    tokens = _by_place([_tokens_of(layers) for layers in recorded], numbers, data["tokens"])
    return [row[-int(n) - 1 : -1] for row, n in zip(tokens, data["response_lengths"], strict=True)]


class _Recorded:
    """The replay of one layer: the experts of each micro-batch."""

    def __init__(self) -> None:
        self.calls: list[Tensor] = []

    def record(self, experts: Tensor) -> None:
        """Keep the experts of a micro-batch."""
        self.calls.append(experts.clone())


def unmoved(tensor: Any) -> Any:  # noqa: ANN401 - a tensor
    """The tensor, in place of a copy on the GPU."""
    return tensor


def _all_batches(
    pack: Callable[..., Any],
    iterator: Callable[..., Any],
    data: dict[str, Any],
    cuts: list[list[int]],
    options: Settings,
) -> list[dict[str, Any]]:
    """The packed micro-batches of each rank in turn."""
    wanted = {"pad_multiplier": 128, "allgather_cp": options["allgather_cp"]}
    more = {name: value for name, value in wanted.items() if name in inspect.signature(pack).parameters}
    cpu = SimpleNamespace(device=lambda: "cpu", current_device=lambda: "cpu")

    with replaced_globals(pack.__globals__, PackedSeqParams=SimpleNamespace, accelerator=cpu):
        packed = []
        for _ in _ranks(options):
            batches = iterator(data, micro_batch_indices=cuts)
            packed += [pack(batches, [*data, "multimodal_train_inputs"], **more) for _ in cuts]
        return packed


def _ranks(options: Settings) -> Iterator[int]:
    """Be each rank in turn: nothing here waits for another rank."""
    mpu: Any = importlib.import_module("megatron.core").mpu
    size = int(options["ranks"] or 1)
    for rank in range(size):
        size_and_rank = {
            "get_context_parallel_world_size": partial(int, size),
            "get_context_parallel_rank": partial(int, rank),
        }
        with replaced_globals(vars(mpu), **size_and_rank):
            yield rank


def _numbers(
    pack: Callable[..., Any],
    iterator: Callable[..., Any],
    data: dict[str, Any],
    cuts: list[list[int]],
    options: Settings,
) -> list[Tensor]:
    """The packed micro-batches with the number of each place, from 1, in place of its token: padding is 0."""
    sizes = [len(row) for row in data["tokens"]]
    numbered = {**data, "tokens": list(torch.split(torch.arange(1, 1 + sum(sizes)), sizes))}
    return [batch["tokens"].flatten() for batch in _all_batches(pack, iterator, numbered, cuts, options)]


def _by_place(streams: list[Tensor], numbers: list[Tensor], rows: list[Tensor]) -> list[Tensor]:
    """What the packed streams hold at the places of each row; -1 where a stream has another length."""
    whole = torch.full((1 + sum(map(len, rows)),), _WRONG, dtype=torch.long)
    for stream, places in zip(streams, numbers, strict=True):
        whole[places] = stream.long() if len(stream) == len(places) else _WRONG
    return list(torch.split(whole[1:], [len(row) for row in rows]))


def _experts(tokens: Tensor) -> Tensor:
    """The experts of all places but the last, [S - 1, layers, experts per token]."""
    kinds = torch.arange(_LAYERS * _EXPERTS_PER_TOKEN).reshape(_LAYERS, _EXPERTS_PER_TOKEN)
    return (tokens[1:].reshape(-1, 1, 1) * kinds.numel() + kinds).int()


def _tokens_of(layers: list[Tensor]) -> Tensor:
    """The tokens of which the experts of a micro-batch were made, if all its layers agree."""
    if len({len(layer) for layer in layers}) > 1:
        return torch.empty(0)
    kinds = torch.arange(_LAYERS * _EXPERTS_PER_TOKEN).reshape(_LAYERS, _EXPERTS_PER_TOKEN)
    chosen = torch.stack(layers, 1).long() - kinds[list(_EXPERT_LAYERS)]  # [N, layers, experts per token]
    same = (chosen == chosen[:, :1, :1]).all(-1).all(-1) & (chosen[:, 0, 0] % kinds.numel() == 0)
    return torch.where(same, chosen[:, 0, 0] // kinds.numel(), _WRONG)


def _actor(actor: type, options: Settings) -> Any:  # noqa: ANN401 - of that class
    config = SimpleNamespace(num_layers=_LAYERS, moe_layer_freq=[int(n in _EXPERT_LAYERS) for n in range(_LAYERS)])
    args = SimpleNamespace(
        num_experts=torch.iinfo(torch.int32).max,
        data_pad_size_multiplier=128,
        sequence_parallel=False,
        allgather_cp=options["allgather_cp"],
    )
    return bare_instance(actor, args=args, model=[SimpleNamespace(module=SimpleNamespace(config=config))])


@contextmanager
def _layer_counts() -> Iterator[None]:
    """Replace Megatron's modules that count the layers of a pipeline stage: one stage has all."""
    doubles = {
        "transformer_block": {"get_num_layers_to_build": lambda _config, **_stage: _LAYERS},
        "transformer_layer": {"get_transformer_layer_offset": lambda _config, **_stage: 0},
    }
    names = {f"megatron.core.transformer.{name}": members for name, members in doubles.items()}
    originals = {name: sys.modules.get(name) for name in names}
    for name, members in names.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(members)
    try:
        yield
    finally:
        for name, original in originals.items():
            if original is None:
                del sys.modules[name]
            else:
                sys.modules[name] = original


def _cuts(inputs: Inputs) -> list[list[int]]:
    parts = torch.arange(inputs.batch.rows).tensor_split(inputs.layout.micro_batches)
    return [part.tolist() for part in parts if len(part)]


def _arguments() -> dict[str, Codec]:
    data = {
        "tokens": Column("token", RaggedSequence()),
        "loss_masks": LOSS_MASKS,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
    }
    return {
        "pack": Constant(Function(PACK)),
        "iterator": Constant(Function(ITERATOR)),
        "data": Table(data),
        "cuts": Derived(_cuts, frozenset({"micro_batches"})),
        "options": AllSettings(),
    }


def cpu() -> str:
    """The current device: the CPU."""
    return "cpu"


def _doubles(target: Target) -> dict[str, Callable[..., Any]]:
    """Replacements of what moves tensors to the GPU."""
    source = module_source(target, DATA)
    doubles: dict[str, tuple[str, Callable[..., Any]]] = {
        ".cuda()": ("Tensor.cuda", unmoved),
        "cuda.current_device()": ("cuda.current_device", cpu),
    }
    return {f"{DATA}.torch.{name}": double for call, (name, double) in doubles.items() if call in source}


def _packed(target: Target, settings: Mapping[str, Settings]) -> Boundary:
    step = Step(
        call=pack_micro_batches,
        name="packed",
        arguments=_arguments(),
        doubles=_doubles(target),
        produced_by={"data": _PRODUCER},
    )
    outputs = {"token": Output("B T", "", "token", at=Use("packed")["tokens"], form=Ragged())}
    if "full_loss_masks" in module_source(target, DATA):
        outputs["mask"] = Output("B T", "", "mask", at=Use("packed")["masks"], form=Cast(Ragged(), torch.bool))
    return Boundary(
        path=PACK,
        stage="batch",
        steps=(step,),
        outputs=outputs,
        settings=settings,
        claims=_PACKED,
        reach="every run; --context-parallel-size 2, --allgather-cp",
        requires=(no_empty_response,),
    )


def _replayed(target: Target, fill: str, settings: Mapping[str, Settings]) -> Boundary:
    classes = {
        "fill": Constant(Function(fill)),
        "actor": Constant(Function(ACTOR)),
        "replay": Constant(Function(REPLAY)),
    }
    step = Step(
        call=replay_experts,
        name="tokens",
        arguments={**classes, **_arguments()},
        doubles=_doubles(target),
        produced_by={
            "data": f"{_PRODUCER}; slime/rollout/sglang_rollout.py, generate: rollout_routed_experts, one row for each "
            "token but the last"
        },
    )
    return Boundary(
        path=f"{fill} -> {PACK}",
        stage="batch",
        steps=(step,),
        unused=frozenset({"mask"}),
        outputs={"token": Output("B T", "", "token", at=Use("tokens"), form=Ragged())},
        settings=settings,
        claims=_REPLAYED,
        reach="--use-rollout-routing-replay; --context-parallel-size 2, --allgather-cp",
        requires=(no_empty_response,),
    )
