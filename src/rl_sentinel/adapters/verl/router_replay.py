"""Boundary of verl's replay of experts on Megatron: the experts that each layer's router gets for each token."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.codecs import Lengths
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import functions, knobs
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.fakes import cpu_device
from rl_sentinel.adapters.verl.megatron_passes import FAKES
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

MODULE = "verl.utils.megatron.router_replay_utils"
PATH = f"{MODULE}.set_router_replay_data"
PATCH = "verl.utils.megatron.router_replay_patch.apply_router_replay_patch"

#: Layers of the model, pipeline stages of the setting with several, and experts per token.
LAYERS, STAGES, CHOSEN = 4, 2, 2

_WHOLE: Settings = {"dense": 0, "recorded": False, "stage": -1, "chunks": 1, "fp8": ""}

#: ``dense`` layers without experts come first. ``recorded`` routes come from this trainer and have only MoE layers.
#: A stage of several ``chunks`` has one layer per chunk (virtual pipeline stages).
SETTINGS: Mapping[str, Settings] = {
    "experts in all layers": _WHOLE,
    "a dense layer": {**_WHOLE, "dense": 1},
    "a dense layer, recorded routes": {**_WHOLE, "dense": 1, "recorded": True},
    "second stage": {**_WHOLE, "stage": 1},
    "a dense layer, second stage, recorded routes": {**_WHOLE, "dense": 1, "recorded": True, "stage": 1},
    "second stage in chunks": {**_WHOLE, "stage": 1, "chunks": 2},
    "a dense layer, first stage in chunks": {**_WHOLE, "dense": 1, "stage": 0, "chunks": 2},
}

#: The setting of a model in FP8, in releases that pad its sequences.
FP8: Mapping[str, Settings] = {"experts in all layers, FP8": {**_WHOLE, "fp8": "hybrid"}}

#: The functions that pack sequences for the model and for the routers, newest first.
PACKERS = ("preprocess_thd_engine", "preprocess_thd_no_padding", "preprocess_packed_seqs")

_ROUTED = (
    "router_replay_utils.py, set_router_replay_data, docstring: replay passes follow exactly the same routing; vLLM, "
    "routed experts: one row for each layer of the model, also for dense layers; models/mcore/model_forward.py, "
    "gptmodel_forward_model_engine: in FP8, preprocess_thd_engine pads the sequences"
)


class RouterFake(torch.nn.Module):
    """A fake Megatron router. The target patches it to replay experts."""

    router_replay: Any

    def __init__(self, config: Any) -> None:  # noqa: ANN401 - Megatron's configuration
        """Store the configuration; the index of the layer is set later."""
        super().__init__()
        self.config, self.layer_number = config, 0

    def set_layer_number(self, number: int) -> None:
        """Set the index of the layer, from 1."""
        self.layer_number = number

    def routing(self, *_logits: object) -> None:
        """Choose experts; the target replaces this method."""


class ConfigFake:
    """A fake of Megatron's configuration class."""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the experts that each layer's router gets, with each setting."""
    if target.has(PATH) and target.has(PATCH):
        yield from try_bind(target, PATH, "batch", lambda: [_replay(target)])


def wrong_routes(  # noqa: PLR0913 - functions of the target, and a setting
    set_data: Callable[..., None],
    patch: Callable[[], None],
    lengths: list[int],
    dense: int,
    recorded: bool,  # noqa: FBT001 - of a setting
    stage: int,
    chunks: int,
    fp8: str,
) -> dict[str, list[float]]:
    """Replay routes in a model; return the length of each response, and the number of tokens with wrong experts.

    Each token has different experts in each layer. Each sequence has a one-token prompt, which may be wrong, too. In
    ``fp8``, the model gets sequences with padding between them, and a router gets routes in the same places.
    """
    sizes = [1 + length for length in lengths]
    stages = STAGES if stage >= 0 else 1
    local = LAYERS // stages // chunks
    firsts = [chunk * LAYERS // chunks + max(stage, 0) * local for chunk in range(chunks)]
    config = SimpleNamespace(
        num_layers=LAYERS,
        moe_layer_freq=[0] * dense + [1] * (LAYERS - dense) if dense else 1,
        enable_routing_replay=True,
        pipeline_model_parallel_size=stages,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        pipeline_model_parallel_layout=None,
        fp8=fp8 or None,
        **dict.fromkeys(("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")),
        **dict.fromkeys(("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"), False),
    )
    routes = 1 + torch.arange(sum(sizes) * LAYERS * CHOSEN).reshape(-1, LAYERS, CHOSEN)
    router_class = type("Router", (RouterFake,), {})
    own = {
        "TopKRouter": router_class,
        "TransformerConfig": type("Config", (ConfigFake,), {}),
        "MoEAlltoAllTokenDispatcher": None,
        "device_name": cpu_device(),
        "mpu": _state(max(stage, 0)),
        "get_transformer_layer_offset": lambda *_config, vp_stage=0, **_stage: firsts[vp_stage or 0],
        "scatter_to_sequence_parallel_region": lambda tensor: tensor,
    }
    patched = inspect.unwrap(patch).__globals__
    with replaced_globals(patched, set_data.__globals__, **own), redirect_stdout(None):
        patched["RouterReplay"].router_instances.clear()
        patch()
        of_chunks = [
            [_router(router_class, config, number) for number in range(max(first, dense), first + local)]
            for first in firsts
        ]
        rows = torch.split(routes[:, dense:] if recorded else routes, sizes)
        takes_model = "model" in inspect.signature(set_data).parameters
        wrong, places = torch.zeros(sum(sizes), dtype=torch.bool), _places(set_data, sizes, padded=bool(fp8))
        for chunk, routers in enumerate(of_chunks):
            if not routers:  # forward_step asks is_replay_forward_action first, which is false without routers
                continue
            for router in routers:
                router.router_replay.target_topk_idx = None  # another chunk's call was for an earlier micro-batch
            model = {"model": SimpleNamespace(decoder=torch.nn.ModuleList(routers))}
            set_data(*_batch(rows, set_data), config, chunk, **(model if takes_model else {}))
            for router in routers:
                wrong |= _differ(router.router_replay.target_topk_idx, routes[:, router.layer_number - 1], places)
        patched["RouterReplay"].router_instances.clear()
    return {"tokens": [float(n) for n in lengths], "wrong": [float(row.sum()) for row in torch.split(wrong, sizes)]}


def _router(kind: type[RouterFake], config: SimpleNamespace, number: int) -> RouterFake:
    router = kind(config)
    router.set_layer_number(1 + number)
    return router


def _places(function: Callable[..., None], sizes: list[int], *, padded: bool) -> Tensor:
    """The tokens of the packed sequences, ``-1`` for padding, as the model gets them."""
    tokens = torch.arange(sum(sizes))
    if not padded:
        return tokens
    numbers = _batch(torch.split(1 + tokens, sizes), function)
    pack = inspect.unwrap(function).__globals__[_packer(function)]
    return torch.as_tensor(pack(*(part for part in numbers if part is not None), use_fp8_padding=True)[0]).flatten() - 1


def _packer(function: Callable[..., None]) -> str:
    """The name of the function that packs the routes; empty in releases without padding for FP8."""
    names, source = inspect.unwrap(function).__globals__, inspect.getsource(function)
    known = {name: inspect.signature(names[name]).parameters for name in PACKERS if f"{name}(" in source}
    masked = "is_nested" not in source
    return next((n for n, of in known.items() if "use_fp8_padding" in of and ("attention_mask" in of) == masked), "")


def _differ(given: Tensor | None, routes: Tensor, places: Tensor) -> Tensor:
    """Whether a token's experts are wrong. All are wrong if the router got none, or another shape."""
    if given is None or given.shape != (len(places), *routes.shape[1:]):
        return torch.ones(len(routes), dtype=torch.bool)
    return (given[places >= 0] != routes).any(1)


def _batch(rows: tuple[Tensor, ...], function: Callable[..., None]) -> tuple[Tensor, Tensor | None]:
    """The routes of sequences and their attention mask; in releases with nested tensors packed, without a mask."""
    if "is_nested" in inspect.getsource(function):
        return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged), None
    attended = [torch.ones(len(row), dtype=torch.bool) for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence
    return padded(list(rows), batch_first=True), padded(attended, batch_first=True)


def _state(stage: int) -> type:
    """A fake of Megatron's parallel state in one pipeline stage."""
    functions = {**parallel_state_of_one_process(), "get_pipeline_model_parallel_rank": lambda *_about, **_more: stage}
    return type("Stage", (), {name: staticmethod(function) for name, function in functions.items()})


def _replay(target: Target) -> Boundary:
    at, form = Use("replayed"), PerRow("list")
    return one_call(
        path=PATH,
        stage="batch",
        call=wrong_routes,
        name="replayed",
        fakes=present(target, FAKES),
        arguments={
            **functions(set_data=PATH, patch=PATCH),
            "lengths": Lengths(),
            **knobs("dense", "recorded", "stage", "chunks", "fp8"),
        },
        produced_by={
            "set_data": "workers/engine/megatron/transformer_impl.py or workers/actor/megatron_actor.py, forward_step: "
            "routed_experts of the batch, the stage of the model, and vp_stage of the chunk, for each micro-batch"
        },
        outputs={
            "tokens": Output("B", "tokens", at=at["tokens"], form=form),
            "tokens with wrong experts": Output("B", "tokens", "experts_off_sampled", at=at["wrong"], form=form),
        },
        settings={**SETTINGS, **(FP8 if _packer(target.find(PATH)) else {})},
        claims=claims(_ROUTED),
        reach="actor.strategy=megatron, router_replay.mode=R3; recorded routes: R2; dense layers: moe_layer_freq; "
        "chunks: megatron.virtual_pipeline_model_parallel_size; FP8: megatron.override_transformer_config.fp8",
        requires=(no_empty_response,),
    )
