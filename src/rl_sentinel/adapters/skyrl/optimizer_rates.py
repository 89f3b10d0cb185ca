"""SkyRL's learning-rate schedules in its FSDP workers."""

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.learning_rates import KINDS, PEAK, UPDATES, rate_boundary, rates_of
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Derived, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.generator import has_setting
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims

_WORKERS = "skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker"
STRATEGY = "skyrl.backends.skyrl_train.distributed.fsdp_strategy.FSDPStrategy"

#: Section of the configuration -> its worker's class, by the names that releases had for it.
CLASSES = {
    name: tuple(f"{_WORKERS}.FSDP{name.capitalize()}{end}" for end in ("WorkerBase", "RayActorBase"))
    for name in ("policy", "critic")
}

_DOCS = (
    "configuration, num_warmup_steps and scheduler: warm-up steps of the optimizer's learning rate, and the type of "
    "its schedule"
)
_ORDER = "fsdp_strategy.py, optimizer_step: the schedule advances once per optimizer step"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the constant schedule and, if a release offers it, the cosine schedule, of policy and critic."""
    for section, names in CLASSES.items():
        path = next((name for name in names if target.has(f"{name}.init_model")), "")
        if path and target.has(STRATEGY) and not target.fails(path):
            for kind in KINDS:
                if kind == "constant" or has_setting(target, f"trainer.{section}.optimizer_config.scheduler"):
                    yield from bindable(target, _rates(target, section, path, kind))


class _Made(Exception):  # noqa: N818 - no error: it ends the rest of a worker's start
    """An exception that ends the start of a worker when the model, the optimizer and the schedule exist."""


class Model(torch.nn.Module):
    """A fake model, with one layer."""

    def __init__(self, *_path: object, **_options: object) -> None:
        """Make the layer."""
        super().__init__()
        self.model = torch.nn.Linear(1, 1)

    def gradient_checkpointing_enable(self, **_options: object) -> None:
        """Do nothing."""


def _without_devices(strategy: Any) -> Any:  # noqa: ANN401 - classes of the target
    """A subclass of the strategy that leaves the model unchanged, and ends a worker's start with :class:`_Made`."""

    class OneProcess(strategy):  # type: ignore[misc]  # a class of the target
        device_mesh = None

        def setup_distributed(self, *_about: object, **_options: object) -> None:
            """Do nothing."""

        def _fsdp_init_model(self, model: Any, **_options: object) -> Any:  # noqa: ANN401
            return model

        def prepare(self, *models: Any, **options: Any) -> None:  # noqa: ANN401
            raise _Made(super().prepare(*models, **options))

    return OneProcess


def _schedule(kind: str, optimizer: Any, num_warmup_steps: int, num_training_steps: int) -> Any:  # noqa: ANN401
    """A fake of transformers' ``get_scheduler`` with two kinds: ``constant_with_warmup`` and ``cosine``."""
    decays: dict[str, Callable[[float], float]] = {
        "constant_with_warmup": lambda _done: 1.0,
        "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    }
    decay = decays[kind]

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return step / max(1, num_warmup_steps)
        return decay((step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def worker_rates(owner: Any, strategy: Any, cfg: Any, count: int) -> list[float]:  # noqa: ANN401 - of the target
    """Start a worker, and return the learning rates of its ``count`` optimizer steps, as fractions of the peak."""
    start, module = owner.init_model, sys.modules[strategy.__module__]
    silent = dict.fromkeys(("_normalize_mini_batch_size", "_seq_parallel_monkey_patch"), lambda *_a, **_k: None)
    whole = "self.cfg.trainer" in inspect.getsource(start)
    worker = bare_instance(type(owner.__name__, (owner,), silent), cfg=cfg if whole else cfg.trainer)
    about = SimpleNamespace(tie_word_embeddings=True, vision_config=None)
    fakes = {
        "FSDPStrategy": _without_devices(strategy),
        "AutoConfig": SimpleNamespace(from_pretrained=lambda *_path, **_options: about),
        "get_init_weight_context_manager": lambda **_options: lambda: torch.device("cpu"),
        "should_use_meta_init": lambda **_options: False,
        **dict.fromkeys(("Actor", "HFModelWrapper", "get_llm_for_sequence_regression"), Model),
    }
    schedules = {
        "get_scheduler": _schedule,
        "get_constant_schedule_with_warmup": lambda optimizer, num_warmup_steps: _schedule(
            "constant_with_warmup", optimizer, num_warmup_steps, 0
        ),
    }
    given = {"num_training_steps": UPDATES} if "num_training_steps" in inspect.signature(start).parameters else {}
    try:
        with replaced_globals(start.__globals__, **fakes), replaced_globals(vars(module), **schedules):
            worker.init_model("model", **given)
    except _Made as made:
        _, optimizer, schedule = made.args[0]

    def advance() -> None:
        optimizer.step()
        schedule.step()

    return rates_of(optimizer, advance, count)


def _rates(target: Target, section: str, path: str, kind: str) -> Boundary:
    algorithm, families = KINDS[kind]
    place = f"trainer.{section}.optimizer_config"
    places = (f"{place}.num_warmup_steps", "trainer.num_warmup_steps")
    warm_up = next((name for name in places if has_setting(target, name)), "")
    fixed: dict[str, Scalar] = {f"{place}.lr": PEAK}
    if has_setting(target, f"{place}.scheduler"):
        fixed[f"{place}.scheduler"] = "constant_with_warmup" if kind == "constant" else kind
    step = Step(
        call=worker_rates,
        name="rates",
        arguments={
            **functions(owner=path, strategy=STRATEGY),
            "cfg": Config(CONFIG, fixed, {warm_up: "warm_up"} if warm_up else {}),
            "count": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"count": _ORDER},
    )
    schedules: dict[str, Settings] = {
        f"{section}, {kind}, {name}": {n: 0.0 if n == "floor" else value for n, value in family.items()}
        for name, family in families.items()
        if warm_up or not family["warm_up"]
    }
    reach = f"trainer.strategy=fsdp or fsdp2; {warm_up}; {place}.scheduler"
    return rate_boundary(
        f"{path}.init_model -> {STRATEGY}._fsdp_init_train_model",
        step,
        schedules,
        claims(_DOCS, algorithm=algorithm),
        reach,
    )
