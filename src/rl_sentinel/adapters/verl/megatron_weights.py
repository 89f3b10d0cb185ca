"""verl's export of Megatron's weights to the engine that samples, without a bridge: until April 2026."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.replacement import nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

PATH = "verl.utils.megatron_utils.per_tensor_generator"
CONVERTER = "verl.models.mcore.weight_converter.McoreToHFWeightConverterDpskv3"

#: Modules that export weights, in the releases that have them.
CALLERS = (
    "verl.workers.megatron_workers",
    "verl.workers.sharding_manager.megatron_vllm",
    "verl.workers.sharding_manager.megatron_sglang",
    "verl.workers.engine.megatron.transformer_impl",
)

#: Setting -> the tensor of each layer that has the numbers of a row. Megatron updates the bias of the router's scores
#: without a gradient and stores it in a buffer (``moe_router_enable_expert_bias``, which verl sets for this model).
KINDS: Mapping[str, str] = {"weights": "weight", "biases of experts": "expert_bias"}

#: Tensor -> its name in the engine.
NAMES: Mapping[str, str] = {"weight": "weight", "expert_bias": "e_score_correction_bias"}

_CLAIMS = claims(
    "verl/workers/megatron_workers.py: per_tensor_generator gives the weights that the rollout engine loads before it "
    "samples; weight_converter.py: the router's expert_bias is the engine's e_score_correction_bias",
    conserves=True,
)
_PRODUCED = (
    "verl/workers/megatron_workers.py, rollout_mode, before it the sharding manager: per_tensor_generator(module, "
    "model_config, weight_converter, tf_config, layer_name_mapping), and update_weights of the engine"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary, in releases with a caller of the export."""
    places = [target.root.joinpath(*caller.split(".")).with_suffix(".py") for caller in CALLERS]
    called = any("per_tensor_generator(" in place.read_text(encoding="utf-8") for place in places if place.is_file())
    if called and target.has(PATH) and target.has(CONVERTER) and not target.fails(PATH):
        yield from bindable(target, _boundary())


class Layer(nn.Module):
    """A layer of a fake model: a router of experts with a weight and a bias, of which a step trains one."""

    def __init__(self, trained: Tensor, kind: str) -> None:
        """Start with other numbers than those after the step."""
        super().__init__()
        self.trained, self.kind = trained, kind
        self.mlp = nn.Module()
        self.mlp.router = nn.Module()
        self.mlp.router.weight = nn.Parameter(2 * trained + 1)
        self.mlp.router.register_buffer("expert_bias", 2 * trained + 1)

    def update(self) -> None:
        """Take a step of training."""
        tensor: Tensor = getattr(self.mlp.router, self.kind)
        tensor.data.copy_(self.trained)


class Model(nn.Module):
    """A fake chunk of a Megatron model, with one layer per row."""

    def __init__(self, rows: list[Tensor], kind: str) -> None:
        """Make the layers."""
        super().__init__()
        self.decoder = nn.Module()
        self.trained = [Layer(row, kind) for row in rows]
        self.decoder.layers = nn.ModuleList(self.trained)

    def update(self) -> None:
        """Take a step of training."""
        for layer in self.trained:
            layer.update()


class State(ModuleType):
    """A fake of Megatron's parallel state: every group has this rank alone."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A function that returns a size of 1, the rank 0, True for a question, or a group."""
        if name.startswith("__"):
            raise AttributeError(name)
        answers = {"size": 1, "rank": 0, "stage": True}
        return lambda *_passed, **_options: answers.get(name.rpartition("_")[2])


def of_one_rank() -> dict[str, Callable[..., Any]]:
    """Fakes of torch's collectives for a group of one rank."""

    def gather(object_list: list[Any], obj: Any, **_group: object) -> None:  # noqa: ANN401 - as in torch
        object_list[:] = [obj]

    def everything(tensor_list: list[Tensor], tensor: Tensor, **_group: object) -> None:
        tensor_list[0].copy_(tensor)

    return {
        "all_gather_object": gather,
        "all_gather": everything,
        "broadcast": nothing,
        "broadcast_object_list": nothing,
        "get_global_rank": lambda **_group: 0,
        "get_world_size": lambda **_group: 1,
    }


def weights_after_a_step(
    export: Callable[..., Any], converter: Callable[..., Any], rows: list[list[float]], kind: str
) -> dict[str, list[Tensor]]:
    """Load the weights of a model into an engine, train, and load them again; return what the engine has, by layer."""
    values = [torch.tensor(row) for row in rows]
    model, config = Model(values, kind), SimpleNamespace(tie_word_embeddings=False, pipeline_model_parallel_size=1)
    engine = {
        f"model.layers.{n}.mlp.gate.{name}": 2 * row + 1 for n, row in enumerate(values) for name in NAMES.values()
    }
    arguments: dict[str, Any] = {
        "actor_module": [model],
        "model_config": config,
        "weight_converter": converter(config, config),
        "transformer_config": config,
        "layer_name_mapping": {"qkv_layer_name": "self_attention.linear_qkv.", "gate_proj_layer_name": "linear_fc1."},
    }
    takes, module = inspect.signature(export).parameters, export.__globals__
    core, state = ModuleType("megatron.core"), State("megatron.core.parallel_state")
    vars(core).update(parallel_state=state, mpu=state)
    fakes = {
        "mpu": state,
        "parallel_state": state,
        "unwrap_model": lambda model, *_classes: model,
        "get_device_id": lambda: "cpu",
    }
    with (
        patch.dict(sys.modules, {"megatron.core": core, "megatron.core.parallel_state": state}),
        replaced_globals(module, **{name: fake for name, fake in fakes.items() if name in module}),
        replaced_globals(vars(dist), **of_one_rank()),
        replaced_globals(vars(torch.cuda), current_device=lambda: "cpu"),
        torch.no_grad(),
    ):
        for step in (nothing, model.update):
            step()
            for name, tensor in export(**{key: value for key, value in arguments.items() if key in takes}):
                engine[name] = tensor.detach().clone()
    return {"logprobs": [engine[f"model.layers.{n}.mlp.gate.{NAMES[kind]}"] for n in range(len(rows))]}


def _boundary() -> Boundary:
    return one_call(
        path=PATH,
        stage="batch",
        call=weights_after_a_step,
        name="weights",
        arguments={
            **functions(export=PATH, converter=CONVERTER),
            "rows": EachRow(RowTokens("rollout_logprob")),
            "kind": Knob("kind"),
        },
        produced_by={"rows": _PRODUCED},
        outputs=row_outputs(Use("weights"), "rollout_logprob"),
        settings={name: {"kind": kind} for name, kind in KINDS.items()},
        claims=_CLAIMS,
        reach="strategy=megatron without mbridge, a mixture of experts with biases (DeepSeek-V3, Moonlight)",
        requires=(no_empty_response,),
    )
