"""TRL's prompt sampler: the number of uses of each prompt per epoch, and of completions per generation."""

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import DISTILLATION, GRPO, RLOO
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.errors import Unbindable

#: Completions per prompt of each trainer.
COMPLETIONS = {GRPO: 2, RLOO: 2, DISTILLATION: 1}

#: Iterations on completions, and steps per generation.
ITERATIONS, STEPS = 2, 2

#: Setting -> whether the data set is shuffled, and whether two prompts share a generation.
FAMILIES = {
    "default": {"shuffle": True, "prompts": 1},
    "in order": {"shuffle": False, "prompts": 1},
    "two prompts": {"shuffle": True, "prompts": 2},
}

#: Setting -> the field that sets the size of a generation: completions of all processes, or steps. Not both are set.
PLANS: dict[str, Settings] = {
    "completions of a generation": {"generation_batch_size": 8},
    "steps of a generation": {"steps_per_generation": 3},
}

#: Completions of a process in a step.
PER_STEP = 2

_PLANNED = (
    "grpo_config.py, generation_batch_size: per_device_train_batch_size * num_processes * steps_per_generation; "
    "mutually exclusive with steps_per_generation"
)

_CALLER = "transformers, Trainer.get_train_dataloader: the trainer's _get_train_sampler on its data set"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the sampler of each online trainer that defines one, and of the planned sizes of a generation."""
    for trainer, completions in COMPLETIONS.items():
        path = f"{trainer}._get_train_sampler"
        if target.has(path) and defines_sampler(target, path):
            yield from bindable(target, _sampler(path, completions))
        known = fields_of(target, trainer)
        config = f"{trainer.replace('_trainer.', '_config.').removesuffix('Trainer')}Config"
        if all(field in known for own in PLANS.values() for field in own):
            yield from bindable(target, *(_plan(config, name, own) for name, own in PLANS.items()))


def defines_sampler(target: Target, path: str) -> bool:
    """Whether TRL defines the method. In other releases, trainers inherit it from transformers."""
    try:
        target.source(target.find(path))
    except Unbindable:
        return False
    return True


def uses(
    method: Callable[..., Any],
    completions: int,
    rows: int,
    shuffle: bool,  # noqa: FBT001 - a setting
    prompts: int,
) -> dict[str, list[float]]:
    """Draw one epoch from the sampler.

    Returns, per prompt, ``uses``: its draws divided by the mean over prompts; and ``planned``: the number of all draws
    divided by the planned number, which is the length of the sampler.

    The planned number must not count an incomplete last generation, which the sampler drops. For ``uses`` every
    generation is complete: it has one prompt if ``prompts`` does not divide ``rows``.
    """
    whole = method(_trainer(completions, rows, prompts if rows % prompts == 0 else 1, shuffle=shuffle))
    draws = Counter(whole)
    total = sum(draws.values())
    sampler = method(_trainer(completions, rows, prompts, shuffle=shuffle))
    count = len(list(sampler))
    planned = len(sampler) if hasattr(sampler, "__len__") else count
    share = 1.0 if count == planned else count / planned if planned else 0.0
    return {
        "uses": [draws[row] * rows / total if total else 0.0 for row in range(rows)],
        "planned": [share] * rows,
    }


def _trainer(completions: int, rows: int, prompts: int, *, shuffle: bool) -> Any:  # noqa: ANN401 - a fake
    """A fake trainer of one process, with the attributes that its sampler reads."""
    batch = prompts * completions
    steps = STEPS if batch % STEPS == 0 else 1
    args = SimpleNamespace(
        generation_batch_size=batch,
        steps_per_generation=steps,
        per_device_train_batch_size=batch // steps,
        gradient_accumulation_steps=steps,
        world_size=1,
        seed=42,
        data_seed=None,
    )
    return SimpleNamespace(
        args=args,
        train_dataset=list(range(rows)),
        num_generations=completions,
        num_iterations=ITERATIONS,
        shuffle_dataset=shuffle,
        accelerator=SimpleNamespace(num_processes=1),
    )


def _sampler(path: str, completions: int) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=uses,
        name="uses",
        arguments={
            "method": Constant(Function(path)),
            "completions": Constant(completions),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            **knobs("shuffle", "prompts"),
        },
        produced_by={"rows": _CALLER},
        reads=frozenset({"group"}),
        outputs={
            "uses of a prompt": Output("B", "samples", "uses", at=Use("uses")["uses"], form=PerRow("list")),
            "draws of a planned draw": Output("B", "samples", "uses", at=Use("uses")["planned"], form=PerRow("list")),
        },
        settings=FAMILIES,
        reach="every run",
    )


def planned(config: Callable[..., Any], fields: dict[str, int]) -> dict[str, float]:
    """The completions and steps per generation that a configuration of one process plans."""
    with tempfile.TemporaryDirectory() as place:
        about = {"output_dir": place, "use_cpu": True, "bf16": False, "report_to": []}
        known = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type] # a class of the target
        groups = {"num_generations": PER_STEP} if "num_generations" in known else {}
        args = config(**about, **groups, per_device_train_batch_size=PER_STEP, **fields)
    steps = float(args.steps_per_generation)
    return {"generation_batch_size": steps * PER_STEP, "steps_per_generation": steps}


def _plan(config: str, name: str, own: Settings) -> Boundary:
    return one_call(
        path=f"{config}.__post_init__",
        stage="config",
        call=planned,
        name="plan",
        arguments={"config": Constant(Function(config)), "fields": Table({field: IfSet(field) for field in own})},
        remembered=True,
        outputs={field: Output("", "", f"setting.{field}", at=Use("plan")[field], form=Number()) for field in own},
        settings={name: own},
        claims=claims(_PLANNED),
        reach=", ".join(f"{field}={value}" for field, value in own.items()),
    )
