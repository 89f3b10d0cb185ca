"""slime's checkpoints: where a run resumes, and whether loading other models changes its arguments."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived, functions
from rl_sentinel.adapters.slime.rollout_fakes import arguments
from rl_sentinel.adapters.slime.samples import module_source
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings

ACTOR = "slime.backends.megatron_utils.actor.MegatronTrainRayActor"
PATH = f"{ACTOR}.load_other_checkpoint"

OPTIONS = "slime.utils.arguments"
VALIDATE = f"{OPTIONS}.slime_validate_args"

#: The option for the exchange of weights between Megatron and transformers, in revisions that have it.
_EXCHANGE = "megatron_to_hf_mode"

#: The folder of a run's own checkpoints, and the file by which Megatron recognizes one.
OWN, _TRACKER = "own", "latest_checkpointed_iteration.txt"

#: The option that chooses a model's step -> the tag of this model.
_STEPS = {"ref_ckpt_step": "ref", "opd_teacher_ckpt_step": "teacher"}

#: Steps of the reference and the teacher.
_OTHER_STEPS = 7000

_CALLER = (
    "slime/backends/megatron_utils/actor.py, init: the reference, the teacher and, with --keep-old-actor, the run's "
    "own checkpoint are loaded one after another; --ckpt-step, by default the newest"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the first rollout after a restart, and of the method that loads other models.

    The method is bound if the step of these models can be chosen.
    """
    if target.has(VALIDATE) and "start_rollout_id" in module_source(target, OPTIONS):
        yield from bindable(target, _restarted(target))
    if target.has(PATH) and not target.fails(PATH) and _tags(target.find(PATH)):
        yield from bindable(target, _loaded())


def steps_loaded(load: Callable[..., Any], actor: type, runs: int) -> dict[str, list[float]]:
    """Load other models in each run, and check which checkpoint step the run reads afterwards.

    Returns, per run, ``own``: its checkpoint step; ``read``: the step that is read afterwards; ``changed``: the number
    of changed arguments; and ``same``: 0, the correct number of them. Run n must read step n. Run 0 must read the
    newest step, which is written as -1 here.
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


def first_rollouts(validate: Callable[..., Any], runs: int, options: Settings) -> dict[str, list[float]]:
    """Restart each run, and check its first rollout.

    Returns, per run, ``own``: the correct first rollout; ``first``: its first rollout after a restart; ``changed``: the
    number of changed options; and ``same``: 0, the correct number of them. Run n has saved rollout n. Run 0 has no
    checkpoint, and starts with rollout 0. A first rollout that validation does not set counts as correct. With a
    changed option, the run loads another checkpoint, or not all of its state.
    """
    columns: dict[str, list[float]] = {"own": [], "first": [], "same": [], "changed": []}
    for run in range(runs):
        args = validated(validate, has_checkpoint=bool(run), load=OWN if run else None, **options)
        left = [bool(vars(args).get(name)) for name in _LEFT_BEHIND] if run else []
        columns["own"].append(run + 1 if run else 0)
        columns["first"].append(columns["own"][-1] if args.start_rollout_id is None else args.start_rollout_id)
        columns["same"].append(0)
        columns["changed"].append(sum(left) + float(run > 0 and args.load != OWN))
    return columns


def validated(validate: Callable[..., Any], *, has_checkpoint: bool, **options: object) -> Any:  # noqa: ANN401
    """The arguments of a run after validation. The folder :data:`OWN` contains a checkpoint or does not exist."""
    args = arguments(room=4, samples=2, **{**_RUN, **options})
    existing = {OWN, os.path.join(OWN, _TRACKER)} if has_checkpoint else set()  # noqa: PTH118 - as slime joins them
    path = SimpleNamespace(exists=existing.__contains__, isdir=existing.__contains__, join=os.path.join)
    with replaced_globals(validate.__globals__, os=SimpleNamespace(path=path)):
        validate(args)
    return args


#: Options of a run that validation reads as numbers, texts or switches.
_RUN: Mapping[str, object] = {
    "advantage_estimator": "grpo",
    **dict.fromkeys(("kl_coef", "kl_loss_coef"), 0.0),
    **dict.fromkeys(("use_kl_loss", "offload", "debug_rollout_only"), False),
    "eps_clip": 0.2,
    "rollout_batch_size": 1,
    "global_batch_size": 2,
    "num_rollout": 1000,
    **dict.fromkeys(("actor_num_nodes", "actor_num_gpus_per_node"), 1),
}

#: Options with which Megatron loads the weights of a checkpoint only.
_LEFT_BEHIND = ("no_load_optim", "no_load_rng", "finetune")


class _Seen:
    """A fake for Megatron's checkpoint loading, which reads the step from the arguments."""

    def __init__(self, args: SimpleNamespace) -> None:
        self.args, self.step = args, 0.0

    def load_checkpoint(self, *_models: object, **_options: object) -> tuple[int, int]:
        """Record the step that is read (-1 for the newest), and return two zeros."""
        self.step = -1.0 if self.args.ckpt_step is None else float(self.args.ckpt_step)
        return 0, 0


def _tags(load: Callable[..., Any]) -> list[str]:
    """The models for which the revision has an option that chooses the step."""
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
        arguments={**functions(load=PATH, actor=ACTOR), "runs": Derived(lambda inputs: inputs.batch.rows)},
        produced_by={"runs": _CALLER},
    )
    outputs = {
        "step of the run": _number("uninterrupted.step", step, "own"),
        "step after other models": _number("resumed.step", step, "read"),
        "no arguments": _number("uninterrupted.changed", step, "same"),
        "arguments that changed": _number("resumed.changed", step, "changed"),
    }
    return _boundary(PATH, step, outputs, reach="--ref-ckpt-step, --keep-old-actor")


def _number(quantity: str, step: Step, key: str) -> Output:
    """An output with one number per run, stored under ``key`` in the result of the step."""
    return Output("B", "", quantity, at=Use(step.result)[key], form=PerRow("list"))


def _boundary(path: str, step: Step, outputs: Mapping[str, Output], **more: Any) -> Boundary:  # noqa: ANN401 - as Boundary
    return Boundary(path=path, stage="batch", steps=(step,), reads=frozenset({"group"}), outputs=outputs, **more)


def _restarted(target: Target) -> Boundary:
    modes = ("raw", "bridge") if _EXCHANGE in module_source(target, OPTIONS) else ()
    step = Step(
        call=first_rollouts,
        name="starts",
        arguments={
            "validate": Constant(Function(VALIDATE)),
            "runs": Derived(lambda inputs: inputs.batch.rows),
            "options": AllSettings(),
        },
        produced_by={
            "runs": "slime/backends/megatron_utils/actor.py, init: the rollout after the loaded one; "
            "slime/ray/placement_group.py: it starts there, unless the options say where"
        },
    )
    outputs = {
        "next rollout": _number("uninterrupted.rollout", step, "own"),
        "first rollout": _number("resumed.rollout", step, "first"),
        "no options": _number("uninterrupted.changed", step, "same"),
        "options that changed": _number("resumed.changed", step, "changed"),
    }
    return _boundary(
        VALIDATE,
        step,
        outputs,
        settings={mode: {_EXCHANGE: mode} for mode in modes} or {"default": {}},
        reach="every run that is restarted with --load",
    )
