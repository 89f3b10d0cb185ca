"""AReaL's LoRA adapter on disk: the weights that an inference server or a new run reads from it."""

import sys
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use

ENGINE = "areal.engine.fsdp_engine.FSDPEngine"
PATH = f"{ENGINE}._save_lora_to_hf"

#: The parts of an adapter, and the name of its module in the model.
_PARTS, _MODULE = ("lora_A", "lora_B"), "base_model.model.layer"

#: Kind of an output -> the suffix of its name.
_WHEN = {"uninterrupted": "", "resumed": " of the saved adapter"}

_CALLER = (
    "areal/engine/fsdp_engine.py, _update_weights_from_disk and save: _save_model_to_hf with config.use_lora; the "
    "server reads the names that PEFT saves, base_model.model.MODULE.lora_A.weight (peft, save_and_load.py)"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the saved adapter, in releases that save the adapter without the base model."""
    yield from try_bind(target, PATH, "batch", lambda: [_saved()])


class Adapted(nn.Module):
    """A fake model with an adapter; parameters have the names that PEFT gives them."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        """Store the weights of the adapter, beside a parameter that does not train."""
        super().__init__()
        self.weights = weights
        self.peft_config = {"default": SimpleNamespace(save_pretrained=lambda _path: None)}

    def named_parameters(self, *_options: Any, **_named: Any) -> Iterator[tuple[str, nn.Parameter]]:  # noqa: ANN401
        """The parameters by name, as a model of PEFT has them."""
        yield f"{_MODULE}.base_layer.weight", nn.Parameter(torch.ones(1), requires_grad=False)
        for part, weight in self.weights.items():
            yield f"{_MODULE}.{part}.default.weight", nn.Parameter(weight)


def saved_and_read(save: Callable[..., Any], owner: type, rows: int) -> dict[str, Tensor]:
    """Save an adapter, and read it.

    Returns weights by part: those of the adapter (``uninterrupted.``) and those read from disk by PEFT's names
    (``resumed.``). Missing weights are 0.
    """
    weights = {part: torch.arange(1.0, rows + 1) + 10 * number for number, part in enumerate(_PARTS)}
    saved: dict[str, Tensor] = {}
    files = ModuleType("safetensors.torch")
    vars(files)["save_file"] = lambda tensors, _path, **_options: saved.update(tensors)
    package = ModuleType("safetensors")
    vars(package)["torch"] = files
    dist = SimpleNamespace(get_rank=lambda: 0, barrier=lambda **_options: None)
    attributes = {
        "model": Adapted(weights),
        "cpu_group": None,
        "_cast_to_compute_dtype": lambda _engine, tensor: tensor,
    }
    engine = bare_instance(type("EngineFake", (owner,), attributes))  # some of them are properties of the class
    with (
        TemporaryDirectory() as folder,
        patch.dict(sys.modules, {"safetensors": package, "safetensors.torch": files}),
        replaced_globals(save.__globals__, dist=dist),
    ):
        save(engine, folder)
    read = {part: saved.get(f"{_MODULE}.{part}.weight", torch.zeros(rows)) for part in _PARTS}
    return {f"uninterrupted.{part}": weight for part, weight in weights.items()} | {
        f"resumed.{part}": weight.detach() for part, weight in read.items()
    }


def _saved() -> Boundary:
    names = {f"{part}{when}": f"{kind}.{part}" for part in _PARTS for kind, when in _WHEN.items()}
    return one_call(
        path=PATH,
        stage="batch",
        call=saved_and_read,
        name="adapter",
        arguments={**functions(save=PATH, owner=ENGINE), "rows": Derived(lambda inputs: inputs.batch.rows)},
        produced_by={"rows": _CALLER},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={
            name: Output("B", "", quantity, at=Use("adapter")[quantity], form=PerRow())
            for name, quantity in names.items()
        },
        reach="use_lora=True with weight_update_mode='disk', or a saved checkpoint",
    )
