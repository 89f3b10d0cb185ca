"""slime's fully asynchronous rollout: a count of how often each sample is trained."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import (
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
    versions_never_decrease,
)
from rl_sentinel.adapters.kit.value_codecs import Derived, functions
from rl_sentinel.adapters.slime.generation import MODULES, ROW, room_of, samples_of
from rl_sentinel.adapters.slime.rollout_fakes import arguments, serving
from rl_sentinel.adapters.slime.rollout_loop import PromptSource
from rl_sentinel.adapters.slime.samples import SAMPLE
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use

PATH = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"

#: Passes of the event loop after which a rollout that is not done counts as waiting forever.
PASSES = 500

_PRODUCER = (
    "slime/rollout/data_source.py, get_samples and add_samples: prompts in order, and prompts that the worker puts "
    "back because the server aborted a request at a weight update"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries that count how often each sample is trained.

    The worker finishes more prompts than one rollout uses.
    """
    module = next((name for name in MODULES if target.has(f"{name}.generate_and_rm_group")), "")
    if module and target.has(PATH) and not target.fails(module):
        yield from bindable(target, _asynchronous(f"{module}.generate_and_rm_group"))


class StartedThread:
    """A fake thread that runs its function immediately, in the event loop of the caller.

    The worker and the rollout then alternate in a fixed order, so that the same batch gives the same result.
    """

    def __init__(self, target: Callable[[], object], **_options: object) -> None:
        """Store the function."""
        self._target = target

    def start(self) -> None:
        """Run the function, which starts its coroutine as a task."""
        self._target()

    def is_alive(self) -> bool:
        """Whether the thread runs; always True."""
        return True

    def join(self, **_options: object) -> None:
        """Return immediately: the event loop ends the task."""


def uses_in_asynchronous_rollouts(
    run: Callable[..., Any],
    generate: Callable[..., Any],
    sample: Callable[..., Any],
    prompts: list[list[dict[str, Any]]],
    room: int,
) -> list[float]:
    """Run as many rollouts as there are prompts, and return how often each sample is trained."""
    groups, server = samples_of(sample, prompts)
    server.room = room
    args = arguments(room, len(groups[0]), rollout_batch_size=1, partial_rollout=False)
    with serving(generate, server), _one_event_loop(run):
        trained = asyncio.run(_rollouts(run, args, PromptSource(groups), len(groups)))
    uses = Counter(row.index for group in trained for row in group)
    return [float(uses[row.index]) for group in groups for row in group]


async def _rollouts(run: Callable[..., Any], args: Any, source: PromptSource, count: int) -> list[list[Any]]:  # noqa: ANN401
    trained = list[list[Any]]()
    for number in range(count):
        rollout = asyncio.create_task(run(args, number, source))
        for _ in range(PASSES):
            await asyncio.sleep(0)
            if rollout.done():
                break
        else:
            return trained  # the rollout would wait forever, so its samples are counted as not trained
        samples: Any = rollout.result()
        trained += getattr(samples, "samples", samples)
    return trained


@contextmanager
def _one_event_loop(run: Callable[..., Any]) -> Iterator[None]:
    """Run the module's worker in the caller's event loop, without a thread and without pauses."""
    module: dict[str, Any] = run.__globals__

    async def pause(_seconds: float) -> None:
        await asyncio.sleep(0)

    def start(coroutine: Coroutine[Any, Any, Any]) -> None:
        workers.append(asyncio.get_running_loop().create_task(coroutine))

    workers = list[asyncio.Task[Any]]()
    threads = SimpleNamespace(Thread=StartedThread)
    fakes: dict[str, Any] = {
        "asyncio": SimpleNamespace(**{**vars(asyncio), "sleep": pause, "run": start}),
        "threading": threads,
        "run": lambda coroutine: coroutine,
        "get_rollout_num_engines": lambda _args: 1,
        "_global_worker": None,
    }
    with replaced_globals(module, **fakes):
        yield


def _asynchronous(generate: str) -> Boundary:
    return one_call(
        path=PATH,
        stage="batch",
        call=uses_in_asynchronous_rollouts,
        name="uses",
        arguments={
            **functions(run=PATH, generate=generate, sample=SAMPLE),
            "prompts": EachPrompt(EachRow(Table(ROW))),
            "room": Derived(room_of),
        },
        produced_by={"prompts": _PRODUCER},
        reads=frozenset({"group", "length", "version"}),
        outputs={"trained": Output("B", "samples", "uses", at=Use("uses"), form=PerRow("list"))},
        reach=f"--rollout-function-path {PATH}",
        requires=(no_empty_response, prompts_are_contiguous, groups_are_equal, versions_never_decrease),
    )
