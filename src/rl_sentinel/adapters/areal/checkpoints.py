"""AReaL's checkpoints on Megatron: the weights and the optimizer's moments after they are saved and loaded."""

import copy
import os
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use

#: Paths of the class, newest first.
MANAGERS = (
    "areal.engine.megatron_utils.checkpointer.MegatronCheckpointManager",
    "areal.utils.megatron_checkpointer.MegatronCheckpointManager",
)

#: The moments of Adam.
MOMENTS = ("exp_avg", "exp_avg_sq")

#: Kind of an output -> the suffix of its name.
_WHEN = {"uninterrupted": "", "resumed": " after a restart"}

_CALLER = (
    "areal/engine/megatron_engine.py, save and load: save_checkpoint, then load_checkpoint with a new optimizer in the "
    "restarted run; areal/utils/recover.py: with_optim=True"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of a checkpoint that a restarted run loads."""
    path = next((path for path in MANAGERS if target.has(path)), "")
    if not path:
        return
    if why := target.fails(path):
        yield Unbound(f"{path}.load_checkpoint", "batch", why)
    else:
        yield from bindable(target, _restored(path))


class Model:
    """A fake Megatron model with one parameter."""

    def __init__(self, weight: Tensor) -> None:
        """Start with this parameter."""
        self.weight = weight

    def sharded_state_dict(self) -> dict[str, Tensor]:
        """The parameter."""
        return {"weight": self.weight}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Set the parameter."""
        self.weight = state["weight"]


class Optimizer:
    """A fake of Megatron's distributed optimizer.

    It has no moments before its first step. Only ``sharded_state_dict(..., is_loading=True)`` allocates moments
    (megatron-core, DistributedOptimizer.sharded_state_dict: "is_loading: flag indicating whether the state dict will be
    used to load the optimizer state").
    """

    def __init__(self, param: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Start with the main parameter and, after a step, its moments."""
        self.state = {"param": param, **moments}

    def sharded_state_dict(self, _model: object, *, is_loading: bool = False, **_options: object) -> dict[str, Any]:
        """The state to save, or the template of the state to load."""
        if is_loading:
            self.state = {**{name: torch.zeros_like(self.state["param"]) for name in MOMENTS}, **self.state}
        return {"state": dict(self.state)}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Set the loaded parts of the state."""
        self.state |= state["state"]


class Files:
    """Fake distributed checkpoints; loading returns the parts that the template names."""

    def __init__(self) -> None:
        """Start without a checkpoint."""
        self.saved: dict[str, Any] = {}

    def save(self, sharded_state_dict: Mapping[str, Any], **_options: object) -> None:
        """Keep a copy."""
        self.saved = copy.deepcopy(dict(sharded_state_dict))

    def load(self, sharded_state_dict: Mapping[str, Any], **_options: object) -> dict[str, Any]:
        """The saved values of the parts in the template."""
        part: dict[str, Any] = _part(self.saved, sharded_state_dict)
        return part


def _part(saved: Any, template: Any) -> Any:  # noqa: ANN401 - a dict, or a value
    if isinstance(template, Mapping) and isinstance(saved, Mapping):
        return {name: _part(saved[name], inner) for name, inner in template.items() if name in saved}
    return saved


def state_after_restart(manager: Any, rows: int) -> dict[str, Tensor]:  # noqa: ANN401 - the target's class
    """Save a checkpoint, and load it in a new run.

    Returns weights and moments by name: those that are saved (``uninterrupted.``) and those after loading
    (``resumed.``). Lost moments are 0.
    """
    weight = torch.arange(1.0, rows + 1)
    moments = {name: weight + 10 * number for number, name in enumerate(MOMENTS, 1)}
    files, tracker = Files(), SimpleNamespace(get_states=lambda: {"default": 0}, set_states=lambda _states: None)
    fakes: dict[str, Any] = {
        "mpu": SimpleNamespace(
            **parallel_state_of_one_process(), set_virtual_pipeline_model_parallel_rank=lambda _rank: None
        ),
        "tensor_parallel": SimpleNamespace(get_cuda_rng_tracker=lambda: tracker),
        "ShardedObject": lambda _name, data, *_place, **_options: data,
        "get_device_name": lambda: "cpu",
        "log_with_rank": lambda *_words, **_options: None,
        "save_dist_checkpointing": files.save,
        "load_dist_checkpointing": files.load,
        "torch": SimpleNamespace(
            distributed=SimpleNamespace(get_rank=lambda: 0, barrier=lambda: None, is_initialized=lambda: False),
            get_rng_state=torch.get_rng_state,
            set_rng_state=torch.set_rng_state,
        ),
    }
    # The folder exists; the fakes do not write into it.
    with replaced_globals(manager.load_checkpoint.__globals__, **fakes):
        manager([Model(weight)], Optimizer(weight, moments), None).save_checkpoint(os.curdir)
        model, optimizer = Model(torch.zeros(rows)), Optimizer(torch.zeros(rows), {})
        manager([model], optimizer, None).load_checkpoint(os.curdir)
    before = {"weight": weight, **moments}
    after = {"weight": model.weight, **{name: optimizer.state.get(name, torch.zeros(rows)) for name in MOMENTS}}
    return {f"uninterrupted.{name}": value for name, value in before.items()} | {
        f"resumed.{name}": value for name, value in after.items()
    }


def _restored(path: str) -> Boundary:
    names = {f"{name}{when}": f"{kind}.{name}" for name in ("weight", *MOMENTS) for kind, when in _WHEN.items()}
    return one_call(
        path=f"{path}.load_checkpoint",
        stage="batch",
        call=state_after_restart,
        name="states",
        arguments={"manager": Constant(Function(path)), "rows": Derived(lambda inputs: inputs.batch.rows)},
        produced_by={"rows": _CALLER},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={
            name: Output("B", "", quantity, at=Use("states")[quantity], form=PerRow())
            for name, quantity in names.items()
        },
        reach="recovery of a run on Megatron",
    )
