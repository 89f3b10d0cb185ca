"""Fakes for slime's transfer of weights: the model, one training rank, and an SGLang engine behind Ray."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.kit.replacement import nothing

#: The names that the engine knows a layer's weight by.
_WEIGHT = r"model\.layers\.(\d+)\.mlp\.down_proj\.weight"

Named = list[tuple[str, Tensor]]


class Layers(nn.Module):
    """A fake model with one weight per layer; its parameters have the names that a pattern gives."""

    def __init__(self, weights: list[Tensor], pattern: str) -> None:
        """Start with other numbers than the weights after training."""
        super().__init__()
        self.trained, self.pattern = weights, pattern
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        self.weights = [nn.Parameter(2 * weight + 1) for weight in weights]

    def named_parameters(self, *_passed: object, **_options: object) -> Iterator[tuple[str, nn.Parameter]]:
        """The weights by name; Megatron marks the parameters that ranks divide."""
        for number, weight in enumerate(self.weights):
            weight.tensor_model_parallel = False  # type: ignore[attr-defined] # Megatron adds it
            yield self.pattern.format(number), weight

    def state_dict(self, *_passed: object, **_options: object) -> Any:  # noqa: ANN401 - as torch declares it
        """The weights by name, without copies."""
        return {name: weight.detach() for name, weight in self.named_parameters()}

    def update(self) -> None:
        """Train: change the weights in place."""
        for weight, trained in zip(self.weights, self.trained, strict=True):
            weight.data.copy_(trained)


class Remote:
    """A method of an actor, called through ``remote``."""

    def __init__(self, method: Callable[..., Any]) -> None:
        """Store the method."""
        self.remote = method


class Engine:
    """A fake SGLang engine: it has the weights that it is sent, and refuses no other call."""

    def __init__(self) -> None:
        """Start without weights."""
        self.weights: dict[int, Tensor] = {}
        self.announced: list[str] = []
        self.update_weights_from_tensor = Remote(self._take_tensors)
        self.update_weights_from_distributed = Remote(self._announce)

    def __getattr__(self, name: str) -> Remote:
        """Any other method: it is called and changes no weights."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Remote(lambda *_passed, **_options: True)

    def _take_tensors(self, serialized_named_tensors: list[Any], load_format: str = "", **_options: object) -> None:
        for sent in serialized_named_tensors:
            for part in sent if isinstance(sent, list) and not load_format else [sent]:
                self._load([part] if isinstance(part, tuple) else _unpacked(part))

    def _announce(self, names: list[str], **_options: object) -> None:
        self.announced.extend(names)

    def receive(self, tensor: Tensor) -> None:
        """Take the tensor that is broadcast; it belongs to the first name that was announced and has none yet."""
        self._load([(self.announced.pop(0), tensor)])

    def _load(self, named: Named) -> None:
        for name, tensor in named:
            match = re.fullmatch(_WEIGHT, name)
            if match is None:
                msg = f"the model has no weight {name}"
                raise KeyError(msg)
            self.weights[int(match[1])] = tensor.detach().clone()

    def of_layers(self, expected: list[Tensor]) -> list[Tensor]:
        """The weights by layer, NaN if a layer was never sent.

        Some revisions send in bfloat16: numbers that differ by its rounding count as equal.
        """
        found = [self.weights.get(layer, torch.full_like(like, torch.nan)) for layer, like in enumerate(expected)]
        return [
            torch.where(torch.isclose(own.float(), like, rtol=2**-7, atol=0.0), like, own.float())
            for own, like in zip(found, expected, strict=True)
        ]


class Bucket:
    """A fake of SGLang's bucket, which joins tensors."""

    supports_multi_dtypes = True

    def __init__(self, named_tensors: Named) -> None:
        """Store the tensors."""
        self.named = named_tensors

    def get_metadata(self) -> list[tuple[str, torch.Size]]:
        """The names and shapes."""
        return [(name, tensor.shape) for name, tensor in self.named]

    def get_flattened_tensor(self) -> Tensor:
        """All numbers."""
        return torch.cat([tensor.flatten() for _, tensor in self.named])


def _unpacked(bucket: Mapping[str, Any]) -> Named:
    sizes = [shape.numel() for _, shape in bucket["metadata"]]
    parts = bucket["flattened_tensor"].split(sizes)
    return [(name, part.view(shape)) for (name, shape), part in zip(bucket["metadata"], parts, strict=True)]


class Progress:
    """A fake progress bar."""

    def __init__(self, items: Any = (), **_options: object) -> None:  # noqa: ANN401 - any items
        """Store the items."""
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        """The items."""
        return iter(self.items)

    def update(self, _more: int) -> None:
        """Show nothing."""


class OneRank:
    """Megatron's parallel state with one rank."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A function that returns a size of 1, the rank 0, or a group."""
        answer: Any = 1 if name.endswith("world_size") else 0 if name.endswith("rank") else "group"
        return lambda *_passed, **_options: answer


def fakes(engine: Engine) -> dict[str, Any]:
    """Name in a module -> its fake: Ray, SGLang, and one rank without a device."""
    device = SimpleNamespace(
        current_device=lambda: "cpu",
        device=lambda: "cpu",
        weight_update_backend=lambda: "gloo",
        **dict.fromkeys(("synchronize", "ipc_collect", "empty_cache"), nothing),
    )
    address = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    port = SimpleNamespace(bind=nothing, getsockname=lambda: ("", 1))
    return {
        "ray": SimpleNamespace(get=lambda results: results, _private=SimpleNamespace(services=address)),
        "socket": SimpleNamespace(socket=lambda: nullcontext(port)),
        "dist": _ranks(engine),
        "mpu": OneRank(),
        "accelerator": device,
        "tqdm": Progress,
        "FlattenedTensorBucket": Bucket,
        "MultiprocessingSerializer": SimpleNamespace(serialize=lambda sent, **_options: sent),
        "get_transformer_layer_offset": lambda _config: 0,
        "init_process_group": lambda **_options: "group",
        "get_gloo_group": lambda: "group",
        **dict.fromkeys(("monkey_patch_torch_reductions", "clear_memory", "print_memory"), nothing),
    }


def _ranks(engine: Engine) -> SimpleNamespace:
    """A fake of ``torch.distributed`` with one rank, whose broadcasts reach the engine."""

    def gather(obj: object, object_gather_list: list[Any], **_options: object) -> None:
        object_gather_list[0] = obj

    def gather_everywhere(object_list: list[Any], obj: object, **_options: object) -> None:
        object_list[0] = obj

    def broadcast(tensor: Tensor, *_passed: object, **_options: object) -> SimpleNamespace:
        engine.receive(tensor)
        return SimpleNamespace(wait=nothing)

    return SimpleNamespace(
        get_rank=lambda *_group: 0,
        get_world_size=lambda *_group: 1,
        new_group=lambda **_options: "group",
        gather_object=gather,
        all_gather_object=gather_everywhere,
        broadcast=broadcast,
        barrier=nothing,
        destroy_process_group=nothing,
        ProcessGroup=object,
    )


def with_buckets() -> dict[str, Any]:
    """Names that a module has only if SGLang is installed: its bucket, and that it exists."""
    return {"FlattenedTensorBucket": Bucket, "use_flattened_tensor_bucket": True}


def on_cpu() -> dict[str, Any]:
    """Name in ``torch.cuda`` -> its fake: no device."""
    return {
        "current_device": lambda: "cpu",
        **dict.fromkeys(("synchronize", "ipc_collect", "empty_cache", "set_device"), nothing),
    }
