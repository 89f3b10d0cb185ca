"""TRL's prompt sampler: how often each prompt is used in an epoch."""

from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import DISTILLATION, GRPO, RLOO
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
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

_CALLER = "transformers, Trainer.get_train_dataloader: the trainer's _get_train_sampler on its data set"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The sampler of each online trainer that defines one."""
    for trainer, completions in COMPLETIONS.items():
        path = f"{trainer}._get_train_sampler"
        if target.has(path) and defines_sampler(target, path):
            yield from bindable(target, _sampler(path, completions))


def defines_sampler(target: Target, path: str) -> bool:
    """Whether TRL defines the method; in other releases it is inherited from the Trainer of transformers."""
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
) -> list[float]:
    """How often each prompt is drawn in an epoch, divided by the average over all prompts.

    The number of prompts per generation divides the data set: the sampler drops an incomplete last generation.
    """
    size = prompts if rows % prompts == 0 else 1
    batch = size * completions
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
    trainer = SimpleNamespace(
        args=args,
        train_dataset=list(range(rows)),
        num_generations=completions,
        num_iterations=ITERATIONS,
        shuffle_dataset=shuffle,
        accelerator=SimpleNamespace(num_processes=1),
    )
    draws = Counter(method(trainer))
    total = sum(draws.values())
    return [draws[row] * rows / total if total else 0.0 for row in range(rows)]


def _sampler(path: str, completions: int) -> Boundary:
    step = Step(
        call=uses,
        name="uses",
        arguments={
            "method": Constant(Function(path)),
            "completions": Constant(completions),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "shuffle": Knob("shuffle"),
            "prompts": Knob("prompts"),
        },
        produced_by={"rows": _CALLER},
    )
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={"uses of a prompt": Output("B", "samples", "uses", at=Use("uses"), form=PerRow("list"))},
        settings=FAMILIES,
        reach="every run",
    )
