"""AReaL's learning-rate schedules of its FSDP and Megatron engines."""

import inspect
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from rl_sentinel.adapters.areal.updates import ENGINE, MEGATRON
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.learning_rates import (
    KINDS,
    PEAK,
    UPDATES,
    MegatronSchedule,
    rate_boundary,
    rates_of,
)
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Names of the method that builds optimizer and schedule, newest first.
METHODS = ("_create_optimizer", "create_optimizer")
#: Names of the method that ends an update, newest first.
ADVANCES = ("lr_scheduler_step", "step_lr_scheduler")
OPTIONS = "areal.api.cli_args.OptimizerConfig"
RUN = "areal.api.io_struct.FinetuneSpec"

#: Epochs and prompts per update of the run; a last batch that is not full is dropped.
_EPOCHS, _PROMPTS = 2, 4

_DOCS = (
    "cli_args.py, OptimizerConfig: lr_scheduler_type, warmup_steps_proportion of the training steps, min_lr_ratio "
    "after annealing"
)
_ORDER = "areal/trainer/rl_trainer.py, train: lr_scheduler_step after each update"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each engine with the constant and the cosine schedule."""
    if not target.has(OPTIONS) or target.fails(OPTIONS):
        return
    run = run_path(target)
    for engine in (ENGINE, MEGATRON):
        path = next((f"{engine}.{name}" for name in METHODS if target.has(f"{engine}.{name}")), "")
        if path and not target.fails(path) and "lr_scheduler_type" in inspect.getsource(target.find(path)):
            for kind in KINDS:
                yield from bindable(target, _rates(path, run, kind, target.locate(path).rpartition(".")[0]))


def run_path(target: Target) -> str:
    """The path of the class that describes a run to the engine."""
    return RUN if target.has(RUN) else "areal.api.cli_args.FinetuneSpec"


class _Anything:
    """Fake options that do not matter here."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - options of many types
        return _Anything() if name in ("ddp", "config") else "float32"


def _constant_after_warm_up(optimizer: torch.optim.Optimizer, num_warmup_steps: int) -> Any:  # noqa: ANN401 - of torch
    """A fake of transformers' schedule: the rate rises in equal steps from 0, then stays."""
    return LambdaLR(optimizer, lambda step: min(1.0, step / num_warmup_steps) if num_warmup_steps else 1.0)


def engine_rates(
    build: Callable[..., Any],
    owner: Any,  # noqa: ANN401 - AReaL's engine class
    options: Any,  # noqa: ANN401 - AReaL's class
    run: Any,  # noqa: ANN401 - AReaL's class
    count: int,
) -> list[float]:
    """Build an engine's schedule; return the learning rates of ``count`` updates, as fractions of the peak."""
    megatron = "get_megatron_optimizer" in build.__globals__
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.0}])
    attributes: dict[str, Any] = {
        "optimizer_config": options,
        "logger": logging.getLogger("areal"),
        "config": SimpleNamespace(use_lora=True, optimizer_dtype="float32"),
        "model": [torch.nn.Linear(1, 1)] if megatron else torch.nn.Linear(1, 1),
        "mcore_config": _Anything(),
        "dtype": torch.float32,
        "enable_fp8": False,
    }
    fakes: dict[str, Any] = {
        "get_megatron_optimizer": lambda *_options, **_more: optimizer,
        "MCoreOptimizerConfig": SimpleNamespace,
        "OptimizerParamScheduler": MegatronSchedule,
        "MegatronCheckpointManager": lambda **_options: None,
        "get_constant_schedule_with_warmup": _constant_after_warm_up,
    }
    engine = bare_instance(owner, **attributes)
    with replaced_globals(build.__globals__, **fakes):
        build(engine, run)
    advance = next(getattr(owner, name) for name in ADVANCES if hasattr(owner, name))
    return rates_of(engine.optimizer, lambda: advance(engine), count)


def make_options(factory: Callable[..., Any], kind: str, warm_up: int, floor: float, name: str = "sgd") -> Any:  # noqa: ANN401 - AReaL's class
    """The optimizer's configuration."""
    share = warm_up / UPDATES
    return factory(type=name, lr=PEAK, lr_scheduler_type=kind, warmup_steps_proportion=share, min_lr_ratio=floor)


def make_run(factory: Callable[..., Any], updates: int) -> Any:  # noqa: ANN401 - AReaL's class
    """A run of ``updates`` updates; the size of the data set is not a multiple of the batch size."""
    size = updates // _EPOCHS * _PROMPTS + 1
    return factory(total_train_epochs=_EPOCHS, dataset_size=size, train_batch_size=_PROMPTS)


def rates(  # noqa: PLR0913 - the parts of a configuration
    build: Callable[..., Any],
    owner: Any,  # noqa: ANN401 - AReaL's class
    options: Callable[..., Any],
    run: Callable[..., Any],
    count: int,
    kind: str,
    warm_up: int,
    updates: int,
    floor: float,
) -> list[float]:
    """The learning rates of ``count`` updates of an engine with this configuration."""
    name = "adam" if "Only AdamW" in inspect.getsource(build) else "sgd"
    chosen = make_options(options, kind, warm_up, floor, name)
    return engine_rates(build, owner, chosen, make_run(run, updates), count)


def _rates(path: str, run: str, kind: str, engine: str) -> Boundary:
    algorithm, settings = KINDS[kind]
    families = {f"{kind}, {name}": options for name, options in settings.items()}
    arguments: dict[str, Codec] = {
        **functions(build=path, owner=engine, options=OPTIONS, run=run),
        "count": Derived(lambda inputs: inputs.batch.rows),
        "kind": Constant(kind),
        "warm_up": Knob("warm_up"),
        "updates": Constant(UPDATES),
        "floor": Knob("floor") if kind == "cosine" else Constant(0.0),
    }
    step = Step(call=rates, name="rates", arguments=arguments, produced_by={"count": _ORDER})
    claimed = claims(_DOCS, algorithm=algorithm)
    return rate_boundary(path, step, families, claimed, f"actor.optimizer.lr_scheduler_type={kind}")
