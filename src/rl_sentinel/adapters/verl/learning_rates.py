"""Boundaries of verl's learning-rate schedules, and of the engine that builds them."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs

MODULE = "verl.utils.torch_functional"
ENGINE = "verl.workers.engine.fsdp.transformer_impl.FSDPEngine._build_lr_scheduler"

#: Number of updates of a run, and the largest number of rows in a batch.
UPDATES = 64

_DOCS = "torch_functional.py, docstrings: a linear warm-up from 0 to the initial rate, then constant, or a cosine"

#: Schedule -> its algorithm, and its parameters besides those of the warm-up, by the names of the settings.
SCHEDULES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "get_constant_schedule_with_warmup": ("constant after warm-up", {}),
    "get_cosine_schedule_with_warmup": (
        "cosine after warm-up",
        {"num_training_steps": "updates", "min_lr_ratio": "floor"},
    ),
    "get_wsd_schedule_with_warmup": (
        "stable after warm-up, then cosine",
        {"num_training_steps": "updates", "min_lr_ratio": "floor", "stable_ratio": "stable"},
    ),
}

#: Setting families: without a warm-up, which is the default, and with one.
FAMILIES: Mapping[str, Settings] = {
    "no warm-up": {"warm_up": 0, "updates": UPDATES, "floor": 0.1, "stable": 0.03},
    "warm-up": {"warm_up": 3, "updates": UPDATES, "floor": 0.1, "stable": 0.03},
}

_ORDER = "workers/engine_workers.py, train_batch; fsdp_workers.py, update_actor: the schedule steps after the updates"


class Section(SimpleNamespace):
    """A section of the configuration."""

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - any setting
        """A setting, or ``default``."""
        return getattr(self, name, default)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each schedule function, then the engine with each schedule that its configuration offers."""
    for name, (algorithm, passed) in SCHEDULES.items():
        path = f"{MODULE}.{name}"
        yield from try_bind(target, path, "batch", partial(_schedules, path, algorithm, passed))
    if target.has(ENGINE):
        yield from try_bind(target, ENGINE, "batch", lambda: list(_engine(target)))


def fewer_rows_than_updates(inputs: Inputs) -> str:
    """The reason to skip a batch with more rows than the run has updates (one per row); empty otherwise."""
    return "" if inputs.batch.rows <= UPDATES else f"the batch has more than {UPDATES} rows, one per update"


def rates(schedule: Callable[..., Any], count: int, warm_up: int, **options: float) -> list[float]:
    """The learning rates of ``count`` updates under a schedule, which steps after each update."""
    return _of_updates(lambda optimizer: schedule(optimizer, num_warmup_steps=warm_up, **options), count)


def rates_of_engine(  # noqa: PLR0913 - the configuration has several parts
    build: Callable[..., Any], count: int, kind: str, warm_up: int, share: float, updates: int, floor: float
) -> list[float]:
    """Let an engine build the schedule of its configuration; return the rates of ``count`` updates."""
    config = Section(
        total_training_steps=updates,
        lr_warmup_steps=warm_up,
        lr_warmup_steps_ratio=share,
        lr_scheduler_type=kind,
        min_lr_ratio=floor,
        num_cycles=0.5,
        warmup_style=kind,
        zero_indexed_step=True,
    )
    engine = SimpleNamespace(optimizer_config=config, rank=1)
    return _of_updates(lambda optimizer: build(engine, optimizer), count)


def _of_updates(schedule: Callable[[torch.optim.Optimizer], Any], count: int) -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = schedule(optimizer)
    places = []
    for _ in range(count):
        weight.grad = -torch.ones(1)
        optimizer.step()
        scheduler.step()
        places.append(weight.item())
    return [after - before for before, after in zip([0.0, *places], places, strict=False)]


def _schedules(path: str, algorithm: str, passed: Mapping[str, str]) -> Iterator[Boundary]:
    names = {"warm_up", "updates", *passed.values()}
    arguments: dict[str, Codec] = {
        "schedule": Constant(Function(path)),
        "count": Derived(lambda inputs: inputs.batch.rows),
        "warm_up": Knob("warm_up"),
        **{parameter: Knob(setting) for parameter, setting in passed.items()},
    }
    step = Step(call=rates, name="rates", arguments=arguments, produced_by={"count": _ORDER})
    own = {name: {n: x for n, x in family.items() if n in names} for name, family in FAMILIES.items()}
    yield _boundary(path, step, own, claims(_DOCS, algorithm=algorithm))


def _engine(target: Target) -> Iterator[Boundary]:
    source = inspect.getsource(target.find(ENGINE))
    for kind in ("constant", "cosine"):
        if f'"{kind}"' not in source:
            continue
        algorithm, _ = SCHEDULES[f"get_{kind}_schedule_with_warmup"]
        arguments: dict[str, Codec] = {
            "build": Constant(Function(ENGINE)),
            "count": Derived(lambda inputs: inputs.batch.rows),
            **constants(kind=kind, warm_up=-1),  # the default: the share decides
            "share": Knob("share"),
            "updates": Constant(UPDATES),
            "floor": Knob("floor"),
        }
        step = Step(call=rates_of_engine, name="rates", arguments=arguments, produced_by={"count": _ORDER})
        families: dict[str, Settings] = {
            f"{kind}, no warm-up": {**FAMILIES["no warm-up"], "share": 0.0},
            f"{kind}, warm-up": {**FAMILIES["warm-up"], "warm_up": UPDATES // 4, "share": 0.25},
        }
        yield _boundary(ENGINE, step, families, claims(_DOCS, algorithm=algorithm))


def _boundary(path: str, step: Step, families: Mapping[str, Settings], claimed: Claims) -> Boundary:
    output = Output("B", "ratio", "learning_rate", at=Use("rates"), form=PerRow())
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={"learning rate": output},
        settings=families,
        claims=claimed,
        reach="every run",
        requires=(fewer_rows_than_updates,),
    )
