"""slime's checkpoints of other models: the arguments of the run after the reference and the teacher are loaded."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use

ACTOR = "slime.backends.megatron_utils.actor.MegatronTrainRayActor"
PATH = f"{ACTOR}.load_other_checkpoint"

#: The option that chooses a model's step -> the tag of this model.
_STEPS = {"ref_ckpt_step": "ref", "opd_teacher_ckpt_step": "teacher"}

#: Steps of the reference and the teacher.
_OTHER_STEPS = 7000

_CALLER = (
    "slime/backends/megatron_utils/actor.py, init: the reference, the teacher and, with --keep-old-actor, the run's "
    "own checkpoint are loaded one after another; --ckpt-step, by default the newest"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The method that loads other models, in revisions where the reference has its own checkpoint step."""
    if target.has(PATH) and not target.fails(PATH) and _tags(target.find(PATH)):
        yield from bindable(target, _loaded())


def steps_loaded(load: Callable[..., Any], actor: type, runs: int) -> dict[str, list[float]]:
    """The checkpoint step of each run, the step that is read after other models are loaded, and the changed arguments.

    Run n has the step n, and run 0 the newest, which is -1 here.
    """
    columns: dict[str, list[float]] = {"own": [], "read": [], "same": [], "changed": []}
    for run in range(runs):
        args = _arguments(run or None)
        before, seen = dict(vars(args)), _Seen(args)
        backup = SimpleNamespace(backup=lambda _tag: None)
        instance = bare_instance(actor, args=args, model=[], weights_backuper=backup)
        instance.update_cpu_params_dict = lambda _weights: None
        instance.weights = dict.fromkeys((*_STEPS.values(), "old_actor"))
        with replaced_globals(load.__globals__, load_checkpoint=seen.load_checkpoint):
            for tag in _tags(load):
                load(instance, tag, "other")
            load(instance, "old_actor", "own")
        columns["own"].append(run or -1)
        columns["read"].append(seen.step)
        columns["same"].append(0)
        columns["changed"].append(sum(value != before[name] for name, value in vars(args).items()))
    return columns


class _Seen:
    """A double of Megatron's loading, which reads the step from the arguments."""

    def __init__(self, args: SimpleNamespace) -> None:
        self.args, self.step = args, 0.0

    def load_checkpoint(self, *_models: object, **_options: object) -> tuple[int, int]:
        """Record which step is read: -1 for the newest."""
        self.step = -1.0 if self.args.ckpt_step is None else float(self.args.ckpt_step)
        return 0, 0


def _tags(load: Callable[..., Any]) -> list[str]:
    """The models whose step the revision can choose."""
    return [tag for option, tag in _STEPS.items() if option in inspect.getsource(load)]


def _arguments(step: int | None) -> SimpleNamespace:
    return SimpleNamespace(
        load="own",
        no_load_optim=False,
        no_load_rng=False,
        finetune=False,
        ckpt_step=step,
        **dict.fromkeys(_STEPS, _OTHER_STEPS),
    )


def _loaded() -> Boundary:
    step = Step(
        call=steps_loaded,
        name="steps",
        arguments={
            "load": Constant(Function(PATH)),
            "actor": Constant(Function(ACTOR)),
            "runs": Derived(lambda inputs: inputs.batch.rows),
        },
        produced_by={"runs": _CALLER},
    )
    steps, form = Use("steps"), PerRow("list")
    return Boundary(
        path=PATH,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={
            "step of the run": Output("B", "", "uninterrupted.step", at=steps["own"], form=form),
            "step after other models": Output("B", "", "resumed.step", at=steps["read"], form=form),
            "no arguments": Output("B", "", "uninterrupted.changed", at=steps["same"], form=form),
            "arguments that changed": Output("B", "", "resumed.changed", at=steps["changed"], form=form),
        },
        reach="--ref-ckpt-step, --keep-old-actor",
    )
