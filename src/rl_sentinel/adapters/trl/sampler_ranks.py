"""TRL's prompt sampler over several processes: a check that all completions of a prompt are in one group."""

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
from rl_sentinel.adapters.trl.samplers import defines_sampler
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use

#: Completions of a prompt, and processes, each of which takes one of them.
COMPLETIONS = RANKS = 2

_SHARES = (
    "accelerate, BatchSamplerShard: each process draws from its own sampler and takes every n-th batch; processes "
    "have different random states, since each samples other tokens"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the sampler of each online trainer that defines a sampler."""
    for trainer in (GRPO, RLOO):
        path = f"{trainer}._get_train_sampler"
        if target.has(path) and defines_sampler(target, path):
            yield from bindable(target, _sampler(path))


def completions_together(method: Callable[..., Any], rows: int, shuffle: bool) -> list[float]:  # noqa: FBT001 - a setting
    """For each prompt, the largest fraction of its completions that are sampled in one step, over all processes.

    It is 1 if the whole group is sampled in one step.
    """
    orders = [own_order(method, sampling_trainer(rows, shuffle=shuffle), rank)[rank::RANKS] for rank in range(RANKS)]
    most = [0] * rows
    for group in zip(*orders, strict=True):
        for row, count in Counter(group).items():
            most[row] = max(most[row], count)
    return [count / COMPLETIONS for count in most]


def sampling_trainer(rows: int, *, shuffle: bool) -> Any:  # noqa: ANN401 - a trainer
    """The fake trainer of one of several processes, with the attributes that the sampler reads."""
    args = SimpleNamespace(
        generation_batch_size=COMPLETIONS,
        steps_per_generation=1,
        per_device_train_batch_size=COMPLETIONS // RANKS,
        gradient_accumulation_steps=1,
        world_size=RANKS,
        seed=42,
        data_seed=None,
    )
    return SimpleNamespace(
        args=args,
        train_dataset=list(range(rows)),
        num_generations=COMPLETIONS,
        num_iterations=1,
        shuffle_dataset=shuffle,
        accelerator=SimpleNamespace(num_processes=RANKS),
    )


def own_order(method: Callable[..., Any], trainer: Any, rank: int) -> list[int]:  # noqa: ANN401 - a trainer
    """The rows that a process draws in an epoch; each rank has a different random state."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(rank)
    try:
        return list(method(trainer))
    finally:
        generator.set_state(before)


def _sampler(path: str) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=completions_together,
        name="uses",
        arguments={
            "method": Constant(Function(path)),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "shuffle": Knob("shuffle"),
        },
        produced_by={"rows": _SHARES},
        reads=frozenset({"group"}),
        outputs={"completions in one group": Output("B", "samples", "uses", at=Use("uses"), form=PerRow("list"))},
        settings={"two processes": {"shuffle": True}},
        reach="several processes",
    )
