"""slime's transfer of weights from FSDP to its engines: which weights they have when the first rollout starts.

Newer revisions do not have this backend.
"""

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.slime.fsdp import ACTOR
from rl_sentinel.adapters.slime.weight_fakes import Engine, Layers, Remote, fakes, on_cpu, with_buckets
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

INIT, UPDATE = f"{ACTOR}.init", f"{ACTOR}.update_weights"

#: Setting -> the option, and how a user reaches it.
FAMILIES: Mapping[str, tuple[bool, str]] = {
    "shared devices": (True, "--colocate"),
    "own devices": (False, "without --colocate"),
}

#: The name of a weight in a checkpoint.
_NAME = "model.layers.{}.mlp.down_proj.weight"

#: Numbers of a run; a buffer has room for one to three weights of most cases.
_NUMBERS: Mapping[str, object] = {
    **dict.fromkeys(("update_weight_buffer_size", "update_weights_bucket_size"), 12),
    **dict.fromkeys(("rollout_num_gpus", "rollout_num_gpus_per_engine"), 1),
    "optimizer": "adam",
    **dict.fromkeys(("lr", "adam_beta1", "adam_beta2", "adam_eps"), 0.1),
    **dict.fromkeys(("weight_decay", "seed"), 0),
}

_CLAIMS = claims(
    "fsdp_utils/actor.py, update_weights: synchronize actor weights to rollout engines; update_weight_utils.py: push "
    "model weights to rollout engines",
    conserves=True,
)
_PRODUCED = (
    "train.py: init of the actors, then actor_model.update_weights, before the first rollout; actor.py, "
    "update_weights: the engines of rollout_manager.get_rollout_engines_and_lock"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the first transfer, in revisions whose FSDP actors ask for the engines."""
    if not target.has(INIT) or not target.has(UPDATE) or target.fails(ACTOR):
        return
    if "get_rollout_engines_and_lock" in inspect.getsource(target.find(ACTOR)):
        for name in FAMILIES:
            yield from bindable(target, _boundary(name))


class Options(SimpleNamespace):
    """The options of a run; an option that is not set is None."""

    def __getattr__(self, name: str) -> None:
        """None."""


class Pretrained:
    """A fake of the classes of transformers that load from a checkpoint."""

    def __init__(self, loaded: object) -> None:
        """Store the loaded object."""
        self.loaded = loaded

    def from_pretrained(self, *_passed: object, **_options: object) -> object:
        """The loaded object."""
        return self.loaded


def first_weights(
    init: Callable[..., Any],
    update: Callable[..., Any],
    owner: type,
    rows: list[list[float]],
    colocate: bool,  # noqa: FBT001 - an argument of the boundary
) -> dict[str, list[Tensor]]:
    """Start an actor whose model has one layer per row, and send its weights; return those that the engine has."""
    weights = [torch.tensor(row) for row in rows]
    model, engine = Layers(weights, _NAME), Engine()
    model.update()
    lock = SimpleNamespace(acquire=Remote(lambda: True), release=Remote(lambda: None))
    counted = "engine_gpu_counts" in inspect.getsource(owner)
    engines = ([engine], lock, 1, *((None, None) if counted else ()))
    manager = SimpleNamespace(
        get_rollout_engines_and_lock=Remote(lambda: engines), clear_num_new_engines=Remote(lambda: None)
    )
    actor = bare_instance(owner, rollout_manager=manager, dp_mesh=None, dp_size=1, **_methods(model))
    folder = owner.__module__.rpartition(".")[0]
    modules = [vars(module) for name, module in list(sys.modules.items()) if name.startswith(folder)]
    empty = torch.empty_like

    def unpinned(like: Tensor, **options: Any) -> Tensor:  # noqa: ANN401 - as torch
        return empty(like, **{**options, "pin_memory": False})

    with (
        patch.dict(vars(sys.modules[f"{folder}.update_weight_utils"]), with_buckets()),
        replaced_globals(*modules, **fakes(engine), **_loading(model)),
        replaced_globals(vars(torch.cuda), **on_cpu()),
        replaced_globals(vars(torch), autocast=lambda **_options: nullcontext(), empty_like=unpinned),
        patch.object(Tensor, "cuda", lambda tensor, *_passed, **_options: tensor),
        patch.object(owner.__mro__[1], "init", _start),
    ):
        names = inspect.signature(init).parameters
        tracked = {"wandb_run_id": None} if "wandb_run_id" in names else {}
        inspect.unwrap(init)(actor, Options(**_NUMBERS, colocate=colocate), "actor", **tracked)
        inspect.unwrap(update)(actor)
    return {"logprobs": engine.of_layers(weights)}


def _start(actor: Any, args: Options, role: str, *_passed: object, **_options: object) -> None:  # noqa: ANN401 - slime's
    """A fake of the method of the base class, which joins process groups."""
    actor.args, actor.role = args, role


def _methods(model: Layers) -> dict[str, Any]:
    """Methods of an actor that need a device, or that load the model in some revisions."""
    return {
        **dict.fromkeys(("setup_device_mesh", "_setup_device_mesh", "_enable_true_on_policy_optimizations"), nothing),
        "_get_init_weight_context_manager": lambda: nullcontext,
        "get_model_cls": lambda: Pretrained(model),
        "_fsdp2_load_full_state_dict": lambda loaded, *_passed, **_options: loaded,
    }


def _loading(model: Layers) -> dict[str, Any]:
    """Name in a module -> its fake: transformers, FSDP of one rank, no checkpoint, and no log."""
    return {
        **dict.fromkeys(("AutoConfig", "AutoTokenizer", "AutoProcessor"), Pretrained(SimpleNamespace())),
        "AutoModelForCausalLM": Pretrained(model),
        "create_fsdp_parallel_state": lambda _args: SimpleNamespace(dp_mesh=None, dp_size=1, cp_size=1),
        "apply_fsdp2": lambda loaded, **_options: loaded,
        "get_model_state_dict": lambda loaded, **_options: loaded.state_dict(),
        "StateDictOptions": SimpleNamespace,
        "checkpoint": SimpleNamespace(load=nothing, finalize_load=nothing),
        "TrainProfiler": lambda _args: SimpleNamespace(on_init_end=nothing),
        **dict.fromkeys(("init_tracking", "load_tokenizer", "load_processor", "get_lr_scheduler"), nothing),
        # Revisions of 2025 wrap the model in a class.
        "FSDP": _Wrapper(),
        "ShardingStrategy": defaultdict(str),
        "init_wandb_secondary": nothing,
        "Timer": lambda: SimpleNamespace(start=nothing),
    }


class _Wrapper:
    """A fake of FSDP on one rank, which changes nothing."""

    def __call__(self, loaded: object, **_options: object) -> object:
        """The model."""
        return loaded

    def state_dict_type(self, *_about: object) -> AbstractContextManager[None]:
        """A context in which state dicts are whole, as they are without it."""
        return nullcontext()


def _boundary(name: str) -> Boundary:
    colocate, reach = FAMILIES[name]
    return one_call(
        path=f"{INIT} -> {UPDATE}",
        stage="batch",
        call=first_weights,
        name="weights",
        arguments={
            **functions(init=INIT, update=UPDATE, owner=ACTOR),
            "rows": EachRow(RowTokens("rollout_logprob")),
            "colocate": Knob("colocate"),
        },
        produced_by={"rows": _PRODUCED},
        outputs=row_outputs(Use("weights"), "rollout_logprob"),
        settings={name: {"colocate": colocate}},
        claims=_CLAIMS,
        reach=f"--train-backend fsdp, {reach}",
        requires=(no_empty_response,),
    )
