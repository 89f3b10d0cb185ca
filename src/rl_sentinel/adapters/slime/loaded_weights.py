"""slime's weights from a folder in the format of transformers: those of the model and of its optimizer."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.slime.weight_fakes import Layers
from rl_sentinel.adapters.slime.weight_updates import NAME
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

_FOLDER = "slime.backends.megatron_utils"
LOAD = f"{_FOLDER}.checkpoint.load_checkpoint"

_CLAIMS = claims(
    "checkpoint.py, load_checkpoint: args.load as in Megatron's load_checkpoint; _load_checkpoint_hf: load checkpoint "
    "from HuggingFace model into Megatron, path=load_path",
    conserves=True,
)
_PRODUCED = (
    "slime/backends/megatron_utils/model.py, initialize_model_and_optimizer: --load; actor.py, load_other_checkpoint: "
    "args.load is the path of the reference, the teacher or the old actor"
)


#: Setting -> options: with ``own_code``, the model's classes are in the folder, and reading the configuration must be
#: allowed to run them.
SETTINGS: Mapping[str, Settings] = {
    "transformers folder": {"own_code": False},
    "transformers folder, code of its own": {"own_code": True},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loading, in revisions that load such folders into Megatron."""
    if target.has(LOAD) and target.has(f"{_FOLDER}.checkpoint._load_checkpoint_hf") and not target.fails(LOAD):
        yield from bindable(target, _boundary())


class Optimizer:
    """A fake of Megatron's optimizer: it trains copies of the weights, which it takes when it is made or asked to."""

    def __init__(self, model: Layers) -> None:
        """Copy the weights."""
        self.model = model
        self.reload_model_params()

    def reload_model_params(self) -> None:
        """Copy the weights again."""
        self.main = [weight.detach().clone() for weight in self.model.weights]


def loaded(load: Callable[..., Any], rows: list[list[float]], *, own_code: bool) -> dict[str, list[Tensor]]:
    """Load a folder into a model with one layer per row; return the weights of the model and of its optimizer.

    Another folder, of the tokenizer and the configuration, has other weights.
    """
    weights = [torch.tensor(row) for row in rows]
    model = Layers(weights, NAME)
    optimizer = Optimizer(model)

    def read(path: object) -> None:
        for own, saved in zip(model.weights, weights, strict=True):
            own.data.copy_(saved if Path(str(path)).name == "load" else saved - 1)

    with TemporaryDirectory() as folder:
        paths = {name: Path(folder, name) for name in ("load", "hf_checkpoint")}
        for path in paths.values():
            path.mkdir()
            path.joinpath("config.json").touch()
        args = SimpleNamespace(
            **{name: str(path) for name, path in paths.items()},
            bf16=True,
            fp16=False,
            load_main_params_from_ckpt=False,
            megatron_to_hf_mode="bridge",
            # In December 2025, actor.py makes the bridge, from this folder.
            bridge=SimpleNamespace(load_hf_weights=lambda _model: read(paths["hf_checkpoint"])),
        )
        with (
            patch.dict(sys.modules, _loaders(read)),
            replaced_globals(load.__globals__, **_globals(args, own_code=own_code)),
        ):
            load([model], optimizer, None, checkpointing_context={}, skip_load_to_model_and_opt=False)
    return {"model": [weight.detach() for weight in model.weights], "optimizer": optimizer.main}


def _globals(args: SimpleNamespace, *, own_code: bool) -> dict[str, Any]:
    """Names in the module -> their fakes: the options, Megatron's bridge and loading, and the configuration.

    Megatron finds no checkpoint of its own in the folder, and so leaves the model as it is (megatron/training,
    checkpointing.py, load_checkpoint without --exit-on-missing-checkpoint).
    """
    bridge = {"patch_megatron_model": lambda _model: nullcontext(), "patch_auto_bridge_hf_config": lambda made: made}

    def configuration(_path: object, *, trust_remote_code: bool = False, **_options: object) -> None:
        if own_code and not trust_remote_code:  # as transformers, where nobody can be asked
            raise ValueError("loading this model requires to execute its configuration: set trust_remote_code=True")

    return {
        "get_args": lambda: args,
        "megatron_bridge_utils": SimpleNamespace(**bridge),
        "AutoConfig": SimpleNamespace(from_pretrained=configuration),
        "_load_checkpoint_megatron": lambda **_options: (0, 0),
    }


def _loaders(read: Callable[[object], None]) -> dict[str, ModuleType]:
    """Fakes of what reads a model's folder: Megatron's bridge, or slime's own since 2026-08."""

    def bridge(path: object, **_options: object) -> SimpleNamespace:
        return SimpleNamespace(load_hf_weights=lambda _model: read(path))

    contents: dict[str, dict[str, Any]] = {
        "megatron.bridge": {"AutoBridge": SimpleNamespace(from_hf_pretrained=bridge)},
        "slime_plugins": {},
        "slime_plugins.megatron_bridge": {},
        f"{_FOLDER}.hf_to_megatron": {"load_hf_weights": lambda _args, _model, path: read(path)},
    }
    modules = {name: ModuleType(name) for name in contents}
    for name, module in modules.items():
        vars(module).update(contents[name])
    return modules


def _boundary() -> Boundary:
    return one_call(
        path=LOAD,
        stage="batch",
        call=loaded,
        name="loaded",
        arguments={**functions(load=LOAD), "rows": EachRow(RowTokens("rollout_logprob")), "own_code": Knob("own_code")},
        produced_by={"rows": _PRODUCED},
        outputs={
            f"weights of the {name}": Output("B T", "nats", "rollout_logprob", at=Use("loaded")[name], form=Ragged())
            for name in ("model", "optimizer")
        },
        settings=SETTINGS,
        claims=_CLAIMS,
        reach="--load, --ref-load or another model in the format of transformers, other than --hf-checkpoint",
        requires=(no_empty_response,),
    )
