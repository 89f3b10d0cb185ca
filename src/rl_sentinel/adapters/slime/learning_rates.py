"""slime's learning rates: Megatron's schedule, scaled to the number of rollouts, also after a restart."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.learning_rates import (
    KINDS,
    PEAK,
    UPDATES,
    MegatronSchedule,
    rate_boundary,
    rates_of,
    rows_are_updates,
)
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

PATH = "slime.backends.megatron_utils.model.get_optimizer_param_scheduler"
INITIALIZE = "slime.backends.megatron_utils.model.initialize_model_and_optimizer"

#: Prompts of a rollout, responses of a prompt, and responses of an update: each rollout is two updates.
_PROMPTS, _RESPONSES, _UPDATE = 4, 2, 4

_DOCS = (
    "model.py, get_optimizer_param_scheduler: the decay takes all updates of num_rollout rollouts; Megatron counts in "
    "samples, in which the warm-up is given as updates or as a share"
)
_ORDER = "model.py, train_one_step: opt_param_scheduler.step by the samples of the update, after the optimizer"
_RESTORES = (
    "Megatron-LM, megatron/training/checkpointing.py, load_checkpoint: opt_param_scheduler.load_state_dict, which "
    "advances the schedule by the samples that it had counted, unless the optimizer stays behind"
)

#: Settings of a run that is restarted.
_RESTARTS = {"cosine": KINDS["cosine"][1]["no warm-up"], "warm-up": KINDS["constant"][1]["warm-up"]}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the constant and cosine schedules, also after a restart.

    The warm-up is a number of updates, or a share of them.
    """
    if target.has(PATH) and not target.fails(PATH):
        yield from bindable(target, *(_rates(kind) for kind in KINDS))
        # The first releases leave the loading to Megatron's own setup.
        if target.has(INITIALIZE) and "load_checkpoint(" in inspect.getsource(target.find(INITIALIZE)):
            yield from bindable(target, _restarted())


def rates(  # noqa: PLR0913 - options of the command line
    build: Callable[..., Any],
    count: int,
    kind: str,
    warm_up: int,
    updates: int,
    floor: float,
    share: bool,  # noqa: FBT001 - a setting
) -> list[float]:
    """Build slime's schedule; return the learning rates of ``count`` updates, as fractions of the peak.

    slime gets the length of the warm-up as a fraction of all updates if ``share`` is True, else as a number of updates.
    """
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.0}])
    with replaced_globals(build.__globals__, OptimizerParamScheduler=MegatronSchedule):
        schedule = build(schedule_arguments(kind, warm_up, updates, floor, share=share), optimizer)
    return rates_of(optimizer, lambda: schedule.step(increment=_UPDATE), count)


def rates_of_restart(  # noqa: PLR0913 - options of the command line
    initialize: Callable[..., Any],
    build: Callable[..., Any],
    count: int,
    warm_up: int,
    updates: int,
    floor: float,
) -> dict[str, list[float]]:
    """Run the schedule without and with a restart.

    Returns, per update, ``rates`` and ``resumed``: the learning rate without a restart, and after a restart before this
    update; ``updates`` and ``counted``: the number of finished updates, and the number that the restarted run counts.
    Every rate of the cosine schedule and of a warm-up differs from the previous rate.
    """
    args = schedule_arguments("constant" if warm_up else "cosine", warm_up, updates, floor, share=False)
    columns: dict[str, list[float]] = {"rates": [], "resumed": [], "updates": [], "counted": []}
    with replaced_globals(
        initialize.__globals__,
        OptimizerParamScheduler=MegatronSchedule,
        setup_model_and_optimizer=lambda args, *_role: ([SimpleNamespace()], *_scheduled(build, args)),
        load_checkpoint=_restore,
        clear_memory=lambda: None,
    ):
        optimizer, schedule = _scheduled(build, args)
        for done in range(count):
            args.saved_updates = done
            _, restarted, _, counted = initialize(args)
            columns["rates"].append(optimizer.param_groups[0]["lr"] / PEAK)
            columns["resumed"].append(restarted.param_groups[0]["lr"] / PEAK)
            columns["updates"].append(done)
            columns["counted"].append(counted)
            schedule.step(increment=_UPDATE)
    return columns


def _scheduled(build: Callable[..., Any], args: SimpleNamespace) -> tuple[Any, Any]:
    """An optimizer at the start of a run, and its schedule."""
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.0}], saved_updates=args.saved_updates)
    return optimizer, build(args, optimizer)


def _restore(_model: object, optimizer: Any, schedule: Any, **_about: object) -> tuple[int, int]:  # noqa: ANN401
    """A fake for Megatron's checkpoint loading: it restores the schedule and returns the number of finished updates."""
    schedule.step(increment=optimizer.saved_updates * _UPDATE)
    return optimizer.saved_updates, 0


def schedule_arguments(kind: str, warm_up: int, updates: int, floor: float, *, share: bool) -> SimpleNamespace:
    """The options of the command line that slime's schedule reads, and the number of finished updates."""
    return SimpleNamespace(
        num_rollout=updates * _UPDATE // (_PROMPTS * _RESPONSES),
        rollout_batch_size=_PROMPTS,
        n_samples_per_prompt=_RESPONSES,
        global_batch_size=_UPDATE,
        lr=PEAK,
        min_lr=floor * PEAK,
        lr_warmup_init=0.0,
        lr_warmup_iters=0 if share else warm_up,
        lr_warmup_fraction=warm_up / updates if share else None,
        lr_decay_iters=None,
        lr_decay_style=kind,
        lr_wsd_decay_iters=None,
        lr_wsd_decay_style="exponential",
        start_weight_decay=0.0,
        end_weight_decay=0.0,
        weight_decay_incr_style="constant",
        use_checkpoint_opt_param_scheduler=False,
        override_opt_param_scheduler=False,
        saved_updates=0,
    )


def _rates(kind: str) -> Boundary:
    algorithm, settings = KINDS[kind]
    families = {
        f"{kind}, {name}{', by share' if share else ''}": {**options, "share": share}
        for name, options in settings.items()
        for share in (False, True)
        if options["warm_up"] or not share
    }
    arguments: dict[str, Codec] = {
        "build": Constant(Function(PATH)),
        "count": Derived(lambda inputs: inputs.batch.rows),
        "kind": Constant(kind),
        **knobs("warm_up", "updates"),
        "floor": Knob("floor") if kind == "cosine" else Constant(0.0),
        "share": Knob("share"),
    }
    step = Step(call=rates, name="rates", arguments=arguments, produced_by={"count": _ORDER})
    return rate_boundary(PATH, step, families, claims(_DOCS, algorithm=algorithm), f"--lr-decay-style {kind}")


def _restarted() -> Boundary:
    outputs = {
        "learning rate": ("uninterrupted.rate", "rates"),
        "learning rate after a restart": ("resumed.rate", "resumed"),
        "finished updates": ("uninterrupted.updates", "updates"),
        "finished updates after a restart": ("resumed.updates", "counted"),
    }
    return one_call(
        path=INITIALIZE,
        stage="batch",
        call=rates_of_restart,
        name="rates",
        arguments={
            **functions(initialize=INITIALIZE, build=PATH),
            "count": Derived(lambda inputs: inputs.batch.rows),
            **{name: Knob(name, default) for name, default in (("warm_up", 0), ("updates", UPDATES), ("floor", 0.0))},
        },
        produced_by={"count": _RESTORES},
        reads=frozenset({"group"}),
        outputs={
            name: Output("B", "", quantity, at=Use("rates")[key], form=PerRow("list"))
            for name, (quantity, key) in outputs.items()
        },
        settings=_RESTARTS,
        claims=claims("docs/en/get_started/usage.md, --load: the path from which training is resumed"),
        reach="every run that is restarted with --load",
        requires=(rows_are_updates,),
    )
