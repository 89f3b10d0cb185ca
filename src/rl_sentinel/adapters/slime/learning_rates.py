"""slime's learning rates: the schedule of Megatron, sized by the rollouts of a run."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.learning_rates import KINDS, PEAK, MegatronSchedule, rate_boundary, rates_of
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

PATH = "slime.backends.megatron_utils.model.get_optimizer_param_scheduler"

#: Prompts of a rollout, responses of a prompt, and responses of an update: each rollout is two updates.
_PROMPTS, _RESPONSES, _UPDATE = 4, 2, 4

_DOCS = (
    "model.py, get_optimizer_param_scheduler: the decay takes all updates of num_rollout rollouts; Megatron counts in "
    "samples, in which the warm-up is given as updates or as a share"
)
_ORDER = "model.py, train_one_step: opt_param_scheduler.step by the samples of the update, after the optimizer"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The constant and the cosine schedule, with the warm-up as a number of updates and as a share."""
    if target.has(PATH) and not target.fails(PATH):
        yield from bindable(target, *(_rates(kind) for kind in KINDS))


def rates(  # noqa: PLR0913 - options of the command line
    build: Callable[..., Any],
    count: int,
    kind: str,
    warm_up: int,
    updates: int,
    floor: float,
    share: bool,  # noqa: FBT001 - a setting
) -> list[float]:
    """The learning rates of ``count`` updates, as fractions of the peak, with the warm-up as a share or as a count."""
    args = SimpleNamespace(
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
    )
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.0}])
    with replaced_globals(build.__globals__, OptimizerParamScheduler=MegatronSchedule):
        schedule = build(args, optimizer)
    return rates_of(optimizer, lambda: schedule.step(increment=_UPDATE), count)


def _rates(kind: str) -> Boundary:
    algorithm, settings = KINDS[kind]
    families = {
        f"{kind}, {name}{', by share' if share else ''}": {**own, "share": share}
        for name, own in settings.items()
        for share in (False, True)
        if own["warm_up"] or not share
    }
    arguments: dict[str, Codec] = {
        "build": Constant(Function(PATH)),
        "count": Derived(lambda inputs: inputs.batch.rows),
        "kind": Constant(kind),
        "warm_up": Knob("warm_up"),
        "updates": Knob("updates"),
        "floor": Knob("floor") if kind == "cosine" else Constant(0.0),
        "share": Knob("share"),
    }
    step = Step(call=rates, name="rates", arguments=arguments, produced_by={"count": _ORDER})
    return rate_boundary(PATH, step, families, claims(_DOCS, algorithm=algorithm), f"--lr-decay-style {kind}")
