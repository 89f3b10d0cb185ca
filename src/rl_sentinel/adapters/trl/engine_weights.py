"""TRL's transfer of weights to vLLM: which weights the engine samples with, also of a policy with an adapter."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import Constant, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO, itself
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: The methods that transfer the weights: of the object that samples, or of trainers that call vLLM themselves.
TRANSFERS = (
    "trl.generation.vllm_generation.VLLMGeneration.sync_weights",
    f"{GRPO}._move_model_to_vllm",
    f"{RLOO}._move_model_to_vllm",
    "trl.trainer.online_dpo_trainer.OnlineDPOTrainer._move_model_to_vllm",
    "trl.experimental.online_dpo.online_dpo_trainer.OnlineDPOTrainer._move_model_to_vllm",
    "trl.experimental.gold.gold_trainer.GOLDTrainer._move_model_to_vllm",
)

#: Mode of vLLM -> source text of a class that supports the mode.
MODES = {"server": "vllm_client", "colocate": "self.llm."}

#: Source texts of a class that can tell the versions of FSDP apart.
SHARDED = ("fsdp_version", "_dist.is_fsdp")

_DOCS = (
    "grpo_trainer.py, _move_model_to_vllm; vllm_generation.py, sync_weights: before sampling, the engine gets the "
    "parameters of the policy under the names of the model without adapters, the adapters merged into them, and the "
    "prefix cache of the earlier weights is reset"
)

#: The variants of a policy: whether it has adapters, and whether FSDP shards its parameters.
POLICIES: Mapping[str, Settings] = {
    "whole": {"adapted": False, "sharded": False},
    "adapters": {"adapted": True, "sharded": False},
    "adapters, sharded": {"adapted": True, "sharded": True},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the transfer to each mode of vLLM, for each variant of a policy that the release supports."""
    for path in dict.fromkeys(target.locate(path) for path in TRANSFERS if target.has(path)):
        if why := target.fails(path):
            yield Unbound(path, "batch", why)
            continue
        source = inspect.getsource(target.find(path.rpartition(".")[0]))
        for mode, needed in MODES.items():
            for name, policy in POLICIES.items():
                sharded = not policy["sharded"] or any(text in source for text in SHARDED)
                if needed in source and sharded and (not policy["adapted"] or "merge_adapter" in source):
                    yield from bindable(target, _transferred(path, f"weights, {mode}, {name}", mode, policy))


class Shard:
    """A fake parameter of FSDP, on an accelerator: no method moves it."""

    is_cpu = False

    def __init__(self, whole: Tensor) -> None:
        """Store the whole parameter."""
        self.whole = whole

    def to(self, _device: object) -> "Shard":
        """The parameter, unchanged."""
        return self

    def full_tensor(self) -> Tensor:
        """The whole parameter."""
        return self.whole


class Weights:
    """A fake policy with one parameter per layer."""

    def __init__(self, layers: list[Tensor], *, sharded: bool) -> None:
        """Store the weights of the layers as parameters."""
        self.sharded = sharded
        self.own = {f"layers.{n}.weight": weight.clone() for n, weight in enumerate(layers)}

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Name and parameter of each layer."""
        yield from self.state_dict().items()

    def parameters(self) -> Iterator[Tensor]:
        """The parameters."""
        yield from self.own.values()

    def state_dict(self) -> dict[str, Any]:
        """The parameters by name, the same tensors as in the model."""
        return {name: Shard(one) if self.sharded else one for name, one in self.own.items()}


class AdaptedWeights(Weights):
    """A fake policy of peft: an adapter has half of each even layer's weight, and odd layers are trained whole."""

    prefix = "lora_"

    def __init__(self, layers: list[Tensor], *, sharded: bool) -> None:
        """Store the halves of even layers, and a trained copy of odd layers beside the original."""
        super().__init__([], sharded=sharded)
        for n, weight in enumerate(layers):
            layer = f"base_model.model.layers.{n}"
            if n % 2:
                self.own[f"{layer}.original_module.weight"] = weight - 1
                self.own[f"{layer}.modules_to_save.default.weight"] = weight.clone()
            else:
                self.own[f"{layer}.base_layer.weight"] = weight / 2
                self.own[f"{layer}.lora_A.default.weight"] = weight / 2

    def _add(self, sign: float) -> None:
        for name, base in self.own.items():
            if "base_layer" in name:
                base.add_(self.own[name.replace("base_layer", "lora_A.default")], alpha=sign)

    def merge_adapter(self) -> None:
        """Add the adapter to the parameters, in place."""
        self._add(1.0)

    def unmerge_adapter(self) -> None:
        """Subtract the adapter from the parameters, in place."""
        self._add(-1.0)


class WeightEngine:
    """A fake vLLM, as a server or in the trainer's process, with a prefix cache of the weights before."""

    def __init__(self) -> None:
        """Start with a cache, and without weights."""
        self.loaded: dict[str, Tensor] = {}
        self.is_cached = True
        runner = SimpleNamespace(model=self)
        executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        self.llm_engine = SimpleNamespace(model_executor=executor)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take a copy of each weight; a cache that was reset before is filled again."""
        for name, weight in weights:
            self.loaded[name] = weight.clone()
        self.is_cached = True

    def update_named_param(self, name: str, weight: Tensor) -> None:
        """Take a copy of one weight."""
        self.load_weights([(name, weight)])

    def update_named_params(self, announced: Iterable[tuple[str, Any, Any]], weights: Iterable[Any]) -> None:
        """Take a copy of each weight under the announced name in its place."""
        self.load_weights((about[0], weight) for about, (_, weight) in zip(announced, weights, strict=True))

    def weight_update(self) -> Any:  # noqa: ANN401 - a context
        """A context of one update with several weights."""
        return nullcontext()

    def reset_prefix_cache(self) -> None:
        """Forget what earlier weights computed."""
        self.is_cached = False

    def weight(self, layer: int, like: Tensor) -> Tensor:
        """The weight of a layer; NaN if the layer got no weight."""
        return self.loaded.get(f"layers.{layer}.weight", torch.full_like(like, torch.nan))


def transferred(  # noqa: PLR0913 - a method and a class of the target, the weights, and the settings
    entry: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - a class of the target
    rows: list[dict[str, list[Any]]],
    mode: str,
    *,
    adapted: bool,
    sharded: bool,
) -> dict[str, list[Tensor]]:
    """Transfer the weights of a policy with one layer per row to the engine.

    Returns, per row, ``logprobs``: the engine's weights of its layer; and ``versions``: the version of the weights with
    which each token is sampled, one less if the engine keeps a prefix cache of earlier weights. The policy has an
    adapter if it is ``adapted``; FSDP 2 splits its parameters if it is ``sharded``.
    """
    engine, layers = WeightEngine(), [torch.tensor(row["weight"]) for row in rows]
    policy = (AdaptedWeights if adapted else Weights)(layers, sharded=sharded)
    self = bare_instance(kind, **attributes_of(policy, engine, mode))
    with replaced_globals(source_globals(entry), **FAKES):
        entry(self)
    late = int(engine.is_cached)
    return {
        "logprobs": [engine.weight(number, layer) for number, layer in enumerate(layers)],
        "versions": [torch.tensor(row["version"]) - late for row in rows],
    }


def attributes_of(policy: Weights, engine: WeightEngine, mode: str) -> dict[str, Any]:
    """The attributes that a transfer reads, after the first optimizer step."""
    plugin = SimpleNamespace(fsdp_version=2) if policy.sharded else None
    about = {"is_main_process": True, "process_index": 0, "device": torch.device("cpu")}
    state = SimpleNamespace(deepspeed_plugin=None, fsdp_plugin=plugin)
    return {
        **dict.fromkeys(("model", "model_wrapped"), policy),
        "accelerator": SimpleNamespace(**about, state=state, unwrap_model=itself),
        "args": SimpleNamespace(report_to=[], ds3_gather_for_generation=True),
        "state": SimpleNamespace(global_step=1),
        **dict.fromkeys(("mode", "vllm_mode"), mode),
        **dict.fromkeys(("vllm_client", "llm", "vllm_engine"), engine),
        **dict.fromkeys(("enable_sleep_mode", "vllm_enable_sleep_mode"), False),
        "is_fsdp_enabled": policy.sharded,
        "_weight_metadata": None,
        "_dist": SimpleNamespace(is_fsdp=policy.sharded, fsdp_version=2, gather_params=_gathered),
    }


def source_globals(entry: Any) -> dict[str, Any]:  # noqa: ANN401 - a method, which decorators may wrap
    """The globals of the module that defines the method."""
    while hasattr(entry, "__wrapped__"):
        entry = entry.__wrapped__
    found: dict[str, Any] = entry.__globals__
    return found


def _gathered(_parameters: object) -> Any:  # noqa: ANN401 - a context
    """A context in which all parameters are whole."""
    return nullcontext()


def _is_adapted(model: object) -> bool:
    """Whether the policy has adapters."""
    return isinstance(model, AdaptedWeights)


def _installed() -> bool:
    """Whether peft is installed; always True."""
    return True


#: Name in a module of TRL -> its fake: peft, with the policies of this module.
FAKES: Mapping[str, Any] = {
    "is_peft_model": _is_adapted,
    "is_peft_available": _installed,
    "PeftModel": AdaptedWeights,
}


def _transferred(path: str, name: str, mode: str, policy: Settings) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=transferred,
        name="weights",
        arguments={
            **functions(entry=path, kind=path.rpartition(".")[0]),
            "rows": EachRow(Table({"weight": RowTokens("rollout_logprob"), "version": RowTokens("version", "int")})),
            "mode": Constant(mode),
            **knobs(*policy),
        },
        produced_by={"rows": "grpo_trainer.py, _generate_single_turn: the policy after an optimizer step"},
        outputs=row_outputs(Use("weights"), "rollout_logprob", "version"),
        settings={name: policy},
        claims=claims(_DOCS, conserves=True),
        reach=f"use_vllm=True, vllm_mode={mode}"
        + (", peft_config" if policy["adapted"] else "")
        + (", FSDP 2" if policy["sharded"] else ""),
        requires=(no_empty_response,),
    )
