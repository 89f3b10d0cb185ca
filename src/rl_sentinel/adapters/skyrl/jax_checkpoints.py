"""SkyRL's weights on JAX: what a model loads from the files that it saved, with numpy in place of JAX."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use

_MODULE = "skyrl.tx.utils.models"
LOAD, SAVE = f"{_MODULE}.load_safetensors", f"{_MODULE}.save_safetensors"
#: The function that lists the weights of each layer; the functions import it when they are called.
UNSTACK = "skyrl.tx.layers.stacked.unstack_state"

#: The number of adapters of a model, the adapter that is saved, its rank, and the number of experts with adapters.
#: With more experts than the rank, releases that cut the wrong axis raise when they load an adapter.
_ADAPTERS, _SLOT, _RANK, _EXPERTS = 2, 1, 2, 2

#: In a shape: the number of rows.
_ROWS = 0

_LAYER = ("model", "layers", 0)
_ADAPTED = ((*_LAYER, "mlp", "gate_proj"), (*_LAYER, "mlp", "experts", "gate_proj"))
#: Setting -> name of a weight -> its path in the model, and its shape there (skyrl/tx/layers/lora.py).
WEIGHTS: Mapping[str, Mapping[str, tuple[tuple[str | int, ...], tuple[int, ...]]]] = {
    "weights": {
        "embedding": (("model", "embed_tokens", "embedding"), (_ROWS, 1)),
        "attention": ((*_LAYER, "self_attn", "q_proj", "kernel"), (1, _ROWS)),
        "projection": ((*_LAYER, "mlp", "gate_proj", "kernel"), (1, _ROWS)),
    },
    "weights of experts": {
        "router": ((*_LAYER, "mlp", "gate", "kernel"), (1, _ROWS)),
        "experts": ((*_LAYER, "mlp", "experts", "gate_proj", "weight"), (_ROWS, 1, 1)),
    },
    "adapter": {
        "lora_A": ((*_ADAPTED[0], "lora_A"), (_ADAPTERS, _ROWS, _RANK)),
        "lora_B": ((*_ADAPTED[0], "lora_B"), (_ADAPTERS, _RANK, _ROWS)),
    },
    "adapter of experts": {
        "lora_A": ((*_ADAPTED[1], "lora_A"), (_ADAPTERS, _EXPERTS, _ROWS, _RANK)),
        "lora_B": ((*_ADAPTED[1], "lora_B"), (_ADAPTERS, _EXPERTS, _RANK, _ROWS)),
    },
}

_CALLERS: Mapping[str, str] = {
    "weights": "skyrl/backends/jax.py, __init__: load_safetensors of the checkpoint, whose names are those that "
    "save_safetensors writes, one entry per expert",
    "adapter": "skyrl/tx/utils/models.py, save_lora_checkpoint and load_lora_checkpoint: an adapter of the model",
}
#: Setting -> what it needs besides the backend.
_REACH: Mapping[str, str] = {
    "adapter": ", and an adapter that is saved and loaded",
    "adapter of experts": ", and an adapter of experts (no more experts than the rank) that is saved and loaded",
}
#: Kind of an output -> the suffix of its name.
_WHEN = {"uninterrupted": "", "resumed": " of the file"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the weights and of an adapter, in releases that list the weights of each layer."""
    if not all(target.has(path) for path in (LOAD, SAVE, UNSTACK)):
        return
    for name in WEIGHTS:
        failing = target.fails(LOAD) or target.fails(UNSTACK)
        if failing:
            yield Unbound(f"{SAVE} -> {LOAD}", "batch", failing)
            return
        yield from bindable(target, _boundary(name))


@dataclass(slots=True)
class _Update:
    """A new array with other numbers at an index, as ``at`` of JAX's arrays makes it."""

    array: Any
    index: Any = None

    def __getitem__(self, index: Any) -> "_Update":  # noqa: ANN401 - an index of numpy
        return _Update(self.array, index)

    def set(self, numbers: Any) -> Any:  # noqa: ANN401 - an array
        """The new array."""
        new = self.array.copy()
        new[self.index] = numbers
        return new


class Array(np.ndarray[Any, Any]):
    """An array with the ``at`` of JAX's arrays."""

    @property
    def at(self) -> _Update:
        """Updates of the array, each of which returns a new one."""
        return _Update(self)


class Parameter:
    """A fake parameter of Flax."""

    sharding = None

    def __init__(self, numbers: Any) -> None:  # noqa: ANN401 - an array
        """Store the numbers."""
        self.value = np.asarray(numbers).view(Array)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the array
        """An attribute of the array."""
        return getattr(self.value, name)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - an index of numpy
        """A part of the array."""
        return self.value[index]

    def __setitem__(self, index: Any, numbers: Any) -> None:  # noqa: ANN401 - of numpy
        """Set a part of the array."""
        self.value[index] = numbers

    def set_raw_value(self, numbers: Any) -> None:  # noqa: ANN401 - an array
        """Replace the array."""
        self.value = np.asarray(numbers).view(Array)


def _model(name: str, rows: int, *, empty: bool) -> dict[tuple[str | int, ...], Parameter]:
    """The weights of a model: the numbers from 1 on, or zeros."""
    made = {}
    for path, shape in WEIGHTS[name].values():
        sizes = [size or rows for size in shape]
        numbers = np.zeros(sizes) if empty else 1.0 + np.arange(np.prod(sizes)).reshape(sizes)
        made[path] = Parameter(numbers)
    return made


def saved_and_loaded(
    load: Callable[..., Any], save: Callable[..., Any], unstack: Callable[..., Any], name: str, rows: int
) -> dict[str, Tensor]:
    """Save the weights of a model, and load them into one whose weights are 0.

    Returns, for each weight, one number per row (the sum over its other axes): those that were saved
    (``uninterrupted.``), and those that were loaded (``resumed.``).
    """
    adapts = name.startswith("adapter")
    own, other = (_model(name, rows, empty=empty) for empty in (False, True))
    written: dict[str, Any] = {}
    files = SimpleNamespace(
        save_file=lambda tensors, _path: written.update(tensors), load_file=lambda _path: dict(written)
    )
    graph = SimpleNamespace(iter_graph=lambda _model: [])
    fakes = {
        "safetensors": SimpleNamespace(numpy=files),
        "nnx": SimpleNamespace(to_flat_state=lambda model: list(model.items()), graph=graph),
        "jax": SimpleNamespace(device_put=lambda numbers, _sharding: numbers, process_count=lambda: 1),
        "jnp": SimpleNamespace(array=np.array),
    }
    config = SimpleNamespace(get_num_experts=lambda: _EXPERTS if adapts else rows)
    prefix = "base_model.model." if adapts else ""
    about = {"adapter_index": _SLOT, "rank": _RANK} if adapts else {}
    with (
        TemporaryDirectory() as folder,
        replaced_globals(load.__globals__, **fakes),
        replaced_globals(unstack.__globals__, unstack_state=lambda model: model),
    ):
        file = Path(folder, "model.safetensors")
        file.touch()
        save(config, own, file, prefix=prefix, **about)
        load(folder, config, other, skip_lora=not adapts, prefix=prefix, **about)
    return {
        f"{kind}.{key}": _per_row(model[path].value, shape, adapts=adapts)
        for kind, model in (("uninterrupted", own), ("resumed", other))
        for key, (path, shape) in WEIGHTS[name].items()
    }


def _per_row(numbers: Any, shape: tuple[int, ...], *, adapts: bool) -> Tensor:  # noqa: ANN401 - an array
    """The sum over the axes of a weight without rows; of an adapter, only the saved one."""
    numbers, shape = (numbers[_SLOT], shape[1:]) if adapts else (numbers, shape)
    others = tuple(axis for axis, size in enumerate(shape) if size != _ROWS)
    return torch.tensor(np.asarray(numbers).sum(others)).float()


def _boundary(name: str) -> Boundary:
    names = {f"{key}{when}": f"{kind}.{key}" for key in WEIGHTS[name] for kind, when in _WHEN.items()}
    return one_call(
        path=f"{SAVE} -> {LOAD}",
        stage="batch",
        call=saved_and_loaded,
        name="weights",
        arguments={
            **functions(load=LOAD, save=SAVE, unstack=UNSTACK),
            "name": Constant(name),
            "rows": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"rows": _CALLERS.get(name, _CALLERS["weights"])},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={
            text: Output("B", "", quantity, at=Use("weights")[quantity], form=PerRow())
            for text, quantity in names.items()
        },
        settings={name: {}},
        reach=f"the Tinker server with backend=jax{_REACH.get(name, '')}",
    )
