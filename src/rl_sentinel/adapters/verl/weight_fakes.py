"""Fakes for verl's transfer of weights: a policy that FSDP shards, also with LoRA, and the engine that samples."""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn

#: The names of weights that an engine knows; it rejects other names.
_BASE = r"model\.layers\.(\d+)\.(?:q_proj|norm)\.weight"
_ADAPTER = r"base_model\.model\.model\.layers\.(\d+)\.q_proj\.lora_A\.weight"


class Shard:
    """A fake of a sharded parameter, which has no copy of its weights: it reads them when they are asked for."""

    def __init__(self, weight: Tensor) -> None:
        """Store the parameter."""
        self.weight = weight

    def to(self, _device: object, **_options: object) -> "Shard":
        """The parameter, unchanged."""
        return self

    def full_tensor(self) -> Tensor:
        """A copy of the whole weight, as it is now."""
        return self.weight.detach().clone()


class Part(nn.Module):
    """A part of the policy, whose ``state_dict`` has sharded parameters."""

    def state_dict(self, *_passed: object, **_options: object) -> Any:  # noqa: ANN401 - shards in the place of tensors
        """The parameters by name, without copies of their weights."""
        return {name: Shard(weight) for name, weight in self.named_parameters()}


class Unit(Part):
    """A part that FSDP2 shards on its own: a layer, or the whole policy."""


class Weight(Part):
    """A module with one parameter."""

    def __init__(self, like: Tensor) -> None:
        """Start with zeros."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros_like(like))


class AdaptedWeight(Part):
    """A fake of peft's linear layer with an adapter: the weight of the adapter is added to the weight of the base."""

    def __init__(self, like: Tensor) -> None:
        """Start with zeros, not merged."""
        super().__init__()
        self.base_layer, self.lora_A = Weight(like), nn.ModuleDict({"default": Weight(like)})
        self.merged_adapters: list[str] = []

    @property
    def merged(self) -> bool:
        """Whether the base contains the adapter."""
        return bool(self.merged_adapters)

    def get_base_layer(self) -> Weight:
        """The module of the base."""
        return self.base_layer

    @property
    def adapter(self) -> nn.Parameter:
        """The weight of the adapter."""
        return cast("Weight", self.lora_A["default"]).weight

    def _add(self, sign: float) -> None:
        self.base_layer.weight.data.add_(self.adapter.data, alpha=sign)

    def merge(self) -> None:
        """Add the adapter to the base, in place."""
        self._add(1.0)
        self.merged_adapters = ["default"]

    def unmerge(self) -> None:
        """Subtract the adapter from the base, in place."""
        self._add(-1.0)
        self.merged_adapters = []


class AdaptedPolicy(Unit):
    """A fake of peft's model, around the policy."""

    def __init__(self) -> None:
        """Start without layers."""
        super().__init__()
        self.peft_config = {"default": _config()}

    def disable_adapter(self) -> AbstractContextManager[None]:
        """A context in which no adapter acts; the weights are the same."""
        return nullcontext()


def _config() -> SimpleNamespace:
    config = SimpleNamespace(r=1, target_modules={"q_proj"}, exclude_modules=None)
    config.to_dict = lambda: {"r": 1, "target_modules": ["q_proj"]}
    return config


class Policy:
    """A policy with one layer per weight.

    With adapters, even layers have half of their weight in the base and half in the adapter; odd layers do not train.
    """

    def __init__(self, weights: list[Tensor], *, adapted: bool) -> None:
        """Start with the weights before training."""
        self.weights, self.adapted = weights, adapted
        self.layers = [self._layer(n, weight) for n, weight in enumerate(weights)]
        decoder, causal = Part(), Part()
        decoder.layers = nn.ModuleList(self.layers)
        self.module: Unit = AdaptedPolicy() if adapted else Unit()
        if adapted:
            causal.model, wrapper = decoder, Part()
            wrapper.model = causal
            self.module.base_model = wrapper
        else:
            self.module.model = decoder
        self._set(trained=False)
        self.start = {n: self._base(n).weight.detach().clone() for n in range(len(weights))}

    def _layer(self, number: int, weight: Tensor) -> Unit:
        layer = Unit()
        name = "norm" if self.adapted and number % 2 else "q_proj"
        adapts = self.adapted and name == "q_proj"
        layer.add_module(name, AdaptedWeight(weight) if adapts else Weight(weight))
        return layer

    def _base(self, number: int) -> Weight:
        (part,) = self.layers[number].children()
        return part.base_layer if isinstance(part, AdaptedWeight) else cast("Weight", part)

    def train(self) -> None:
        """Update the weights in place, to those that the next responses must be sampled with."""
        self._set(trained=True)

    def _set(self, *, trained: bool) -> None:
        for number, weight in enumerate(self.weights):
            (part,) = self.layers[number].children()
            if isinstance(part, AdaptedWeight):
                part.base_layer.weight.data.copy_(weight / 2)
                part.adapter.data.copy_(weight / 2 if trained else 1.5 * weight + 1)
            else:
                frozen = self.adapted or trained
                self._base(number).weight.data.copy_(weight if frozen else 2 * weight + 1)


class SamplingEngine:
    """A fake rollout with its engine, in the trainer's process or behind a checkpoint engine."""

    def __init__(self, loaded: dict[int, Tensor], sleep_level: int) -> None:
        """Start with the weights that the engine loaded; at ``sleep_level`` 2 they are discarded during sleep."""
        self.base, self.adapter = dict(loaded), dict[int, Tensor]()
        self.sleep_level = sleep_level

    async def resume(self, **_options: object) -> None:
        """Take memory again; discarded weights do not come back."""

    async def release(self, **_options: object) -> None:
        """Release memory before training."""
        if self.sleep_level > 1:
            self.base.clear()

    async def update_weights(
        self,
        weights: Iterable[tuple[str, Tensor]],
        peft_config: object = None,
        *,
        base_sync_done: bool = False,
        **_options: object,
    ) -> None:
        """Take a copy of each weight: of a whole new adapter, or of the base."""
        if peft_config and base_sync_done:
            self.adapter = _layers(_ADAPTER, weights)
        else:
            self.base.update(_layers(_BASE, weights))

    async def send_weights(self, weights: Iterable[tuple[str, Tensor]], **_options: object) -> dict[str, float]:
        """Send each weight to the engine, which knows its kind by the name."""
        sent = [(name, weight.clone()) for name, weight in dict(weights).items()]
        self.base.update(_layers(_BASE, sent))
        self.adapter.update(_layers(_ADAPTER, sent))
        return {}

    def weight(self, layer: int, like: Tensor) -> Tensor:
        """The weight of a layer, with its adapter; NaN if the engine has no weight for the layer."""
        absent = torch.full_like(like, torch.nan)
        return self.base.get(layer, absent) + self.adapter.get(layer, torch.zeros_like(like))


def _layers(known: str, weights: Iterable[tuple[str, Tensor]]) -> dict[int, Tensor]:
    """Layer -> a copy of its weight, for names that are known; a name may mark the base as peft does.

    Weights are pairs or, as in some releases, a dict: vLLM's rollout makes a dict of both.
    """
    pairs = dict(weights).items()
    found = ((re.fullmatch(known, name.replace(".base_layer", "")), weight) for name, weight in pairs)
    return {int(match[1]): weight.detach().clone().float() for match, weight in found if match}


class WholeParameters:
    """A fake of the class of FSDP1, which gathers nothing: parameters are whole."""

    @staticmethod
    def summon_full_params(*_passed: object, **_options: object) -> AbstractContextManager[None]:
        """A context in which the parameters are whole."""
        return nullcontext()


def adapter_weights(policy: nn.Module, state_dict: Any = None, **_options: object) -> dict[str, Any]:  # noqa: ANN401
    """The weights of the adapter by the names that peft gives them; a fake of ``get_peft_model_state_dict``."""
    state = policy.state_dict() if state_dict is None else state_dict
    return {name.replace(".default", ""): weight for name, weight in state.items() if "lora_" in name}


@contextmanager
def peft_installed() -> Iterator[None]:
    """A context in which peft can be imported: a fake with the classes and the function that verl uses."""
    contents: dict[str, dict[str, Any]] = {
        "peft": {"PeftModel": AdaptedPolicy},
        "peft.utils": {},
        "peft.utils.save_and_load": {"get_peft_model_state_dict": adapter_weights},
        "peft.tuners": {},
        "peft.tuners.lora": {"LoraLayer": AdaptedWeight},
    }
    modules = {name: ModuleType(name) for name in contents}
    for name, module in modules.items():
        vars(module).update(contents[name])
    with patch.dict(sys.modules, modules):
        yield
