"""TRL's sampler of prompts on several processes: whether all of them draw one order, of which each takes its share."""

from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO
from rl_sentinel.adapters.trl.samplers import COMPLETIONS, defines_sampler
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use

#: Processes, each of which takes one of the completions of a prompt.
RANKS = COMPLETIONS

_SHARES = (
    "accelerate, BatchSamplerShard: each process draws from a sampler of its own and takes every n-th batch; the random "
    "state of a process is its own, since each samples other tokens"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The sampler of each online trainer that has one."""
    for trainer in (GRPO, RLOO):
        path = f"{trainer}._get_train_sampler"
        if target.has(path) and defines_sampler(target, path):
            yield from bindable(target, _sampler(path))


def shares(method: Callable[..., Any], rows: int, shuffle: bool) -> list[float]:  # noqa: FBT001 - a setting
    """How often the processes together draw each prompt in an epoch, by how often all are drawn on average."""
    drawn: Counter[int] = Counter()
    for rank in range(RANKS):
        args = SimpleNamespace(
            generation_batch_size=COMPLETIONS,
            steps_per_generation=1,
            per_device_train_batch_size=COMPLETIONS // RANKS,
            gradient_accumulation_steps=1,
            world_size=RANKS,
            seed=42,
            data_seed=None,
        )
        trainer = SimpleNamespace(
            args=args,
            train_dataset=list(range(rows)),
            num_generations=COMPLETIONS,
            num_iterations=1,
            shuffle_dataset=shuffle,
            accelerator=SimpleNamespace(num_processes=RANKS),
        )
        drawn.update(own_order(method, trainer, rank)[rank::RANKS])
    total = sum(drawn.values())
    return [drawn[row] * rows / total if total else 0.0 for row in range(rows)]


def own_order(method: Callable[..., Any], trainer: Any, rank: int) -> list[int]:  # noqa: ANN401 - a trainer
    """What a process draws in an epoch, with the random state that it has."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(rank)
    try:
        return list(method(trainer))
    finally:
        generator.set_state(before)


def _sampler(path: str) -> Boundary:
    step = Step(
        call=shares,
        name="uses",
        arguments={
            "method": Constant(Function(path)),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "shuffle": Knob("shuffle"),
        },
        produced_by={"rows": _SHARES},
    )
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={"uses of a prompt": Output("B", "samples", "uses", at=Use("uses"), form=PerRow("list"))},
        settings={"two processes": {"shuffle": True}},
        reach="several processes",
    )
