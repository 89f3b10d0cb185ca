"""The order in which AReaL samples the prompts of a data set, epoch by epoch."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.areal.dataloader import BATCH, CREATE, SHARED, TRAINING, Loader, has_full_batch
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: The class that asks for rollouts, newest first. Until October 2025, it was in another module.
EXECUTORS = (
    "areal.infra.workflow_executor.WorkflowExecutor",
    "areal.api.workflow_api.WorkflowExecutor",
)

_CLAIMS = claims(
    "cli_args.py, DatasetConfig.shuffle: whether to shuffle the dataset; torch, DataLoader: shuffle: the data are "
    "reshuffled at every epoch",
    knobs={"epoch": (0, 1)},
)
_CALLER = (
    "areal/trainer/rl_trainer.py: prepare_batch(train_dataloader, workflow) once a step; the loader of one rank, of "
    "areal/utils/dataloader.py or, in examples until October 2025, StatefulDataLoader(dataset, shuffle=...)"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the prompts that an executor asks for."""
    executor = next((path for path in EXECUTORS if target.has(f"{path}.prepare_batch")), "")
    if executor and not target.fails(executor):
        yield from bindable(target, _boundary(target, executor))


class Batches(Loader):
    """A fake of torchdata's stateful data loader, with the size of its batches."""

    @property
    def batch_size(self) -> int:
        """The number of samples of a batch."""
        return int(self.batches.batch_size)

    @property
    def samples(self) -> int:
        """The number of samples of an epoch."""
        drawn = len(self.sampler)
        return drawn - drawn % self.batch_size if self.batches.drop_last else drawn


class Asked:
    """A fake of the queues of an executor, with room for every prompt: it records the prompts."""

    maxsize = max_queue_size = 1 << 20

    def __init__(self) -> None:
        """Start without prompts."""
        self.prompts: list[int] = []

    def qsize(self) -> int:
        """The number of prompts that wait, 0."""
        return 0

    get_input_queue_size = qsize

    def get_pending_limit(self) -> int:
        """The number of prompts that may wait."""
        return self.maxsize

    def submit(self, prompt: int, *_about: object, **_options: object) -> None:
        """Record a prompt."""
        self.prompts.append(prompt)

    def wait(self, *_about: object, **_options: object) -> dict[str, int]:
        """A result that no boundary reads."""
        return {"rows": 1}

    def active_submit_and_wait(self, tasks: Iterator[Any], batch_size: int, **_options: object) -> list[Any]:
        """Record the prompts of a batch, and return no results."""
        self.prompts += [next(tasks).data for _ in range(batch_size)]
        return []


def places_asked_for(  # noqa: PLR0913 - classes of the target, and the arguments of a run
    prepare: Callable[..., Any],
    executor: type,
    create: Callable[..., Any] | None,
    config: Callable[..., Any] | None,
    rows: int,
    epoch: int,
) -> list[float]:
    """The position of each sample among the prompts of an epoch of a shuffled data set, or -1 if it is not drawn."""
    asked, samples = Asked(), list(range(rows))
    numbers = iter(range(1 << 20))
    made = bare_instance(
        executor,
        config=SimpleNamespace(enable_rollout_tracing=False),
        get_capacity=lambda: asked.maxsize,
        **dict.fromkeys(("input_queue", "runner", "_dispatcher", "_staleness_manager", "staleness_manager"), asked),
        _pending_inputs=[],
        submit=asked.submit,
        wait=asked.wait,
        _task_id_generator=SimpleNamespace(next=lambda: next(numbers)),
        _resolve_workflow=nothing,
        _resolve_should_accept_fn=nothing,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if create and config:
            options = config(path="data", type="rl", batch_size=BATCH, num_workers=0, shuffle=True)
            with replaced_globals(create.__globals__, StatefulDataLoader=Batches):
                loader = create(samples, 0, 1, options)
        else:
            loader = Batches(samples, batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=list)
        with replaced_globals(inspect.unwrap(prepare).__globals__, concat_padded_tensors=nothing):
            for _ in range((epoch + 1) * len(loader)):
                prepare(made, loader, None)
    drawn = asked.prompts[epoch * loader.samples : (epoch + 1) * loader.samples]
    return [float(drawn.index(row)) if row in drawn else -1.0 for row in samples]


def _boundary(target: Target, executor: str) -> Boundary:
    path = f"{executor}.prepare_batch"
    config = next((name for name in (TRAINING, SHARED) if target.has(name)), "")
    creates = bool(config) and target.has(CREATE) and not target.fails(CREATE)
    made = {"create": CREATE, "config": config}
    return one_call(
        path=path,
        stage="batch",
        call=places_asked_for,
        name="places",
        arguments={
            **functions(prepare=path, executor=executor),
            **{name: Constant(Function(place) if creates else None) for name, place in made.items()},
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "epoch": Knob("epoch"),
        },
        produced_by={"epoch": _CALLER},
        reads=frozenset({"group"}),
        outputs={"place in the epoch": Output("B", "", at=Use("places"), form=PerRow("list"))},
        settings={"shuffled": {"epoch": 0}},
        claims=_CLAIMS,
        reach="every run with train_dataset.shuffle=True (the default) of more than one epoch",
        requires=(has_full_batch,),
    )
