"""SkyRL's fully asynchronous trainer: the limit on staleness, and the data loader after a restart."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

MODULE = "skyrl.train.fully_async_trainer"
MANAGER, LOADER = f"{MODULE}._AsyncStalenessManager", f"{MODULE}._AsyncDataloader"

#: A limit on concurrent generations that no case reaches.
MANY = 10_000

#: Iterations of the event loop after which a request for a slot counts as blocked.
TURNS = 10

_MANAGER = claims(
    "fully_async_trainer.py, _AsyncStalenessManager, docstring: never submit more than training can consume, after "
    "section 5.1 of arXiv 2505.24298"
)
_LOADER = claims(
    "fully_async_trainer.py, _AsyncDataloader, docstring: records consumed data to avoid training on the same data "
    "upon resuming"
)

SETTINGS: Mapping[str, Settings] = {
    "on policy": {"finished": 2, "max_staleness": 0, "filtered": 0},
    "two behind": {"finished": 3, "max_staleness": 2, "filtered": 0},
    "some thrown away": {"finished": 2, "max_staleness": 1, "filtered": 1},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the staleness manager, and the data loader that records which prompts were consumed."""
    for path, make in ((MANAGER, _manager), (LOADER, _loader)):
        if target.has(path):
            if why := target.fails(path):
                yield Unbound(path, "batch", why)
            else:
                yield from bindable(target, make(target))


async def _admit(manager: Any, filtered: int) -> int:  # noqa: ANN401 - the target's class
    """Finish generations until the manager blocks a further generation; discard the first ``filtered`` generations."""
    admitted = 0
    while True:
        slot = asyncio.ensure_future(manager.acquire_submission_slot())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if not slot.done():
            slot.cancel()
            return admitted
        await manager.on_rollout_accepted()
        admitted += 1
        if filtered > 0:
            await manager.on_rollout_filtered()
            filtered, admitted = filtered - 1, admitted - 1


def count_admitted(make: Callable[..., Any], rows: int, finished: int, max_staleness: int, filtered: int) -> Any:  # noqa: ANN401
    """Count all samples that are admitted until the manager blocks after ``finished`` updates.

    Discarded samples do not count. Returns ``admitted``: the number in one session; and ``resumed``: the number with a
    restart after the last update.
    """

    def new_manager() -> Any:  # noqa: ANN401 - the target's class
        sizes = {"max_concurrent_generation_groups": MANY, "mini_batch_size": rows}
        return make(**sizes, max_staleness_steps=max_staleness)

    async def session(manager: Any, first: int, count: int) -> int:  # noqa: ANN401 - the target's class
        for step in range(first, finished + 1):
            count += await _admit(manager, filtered)
            if step < finished:
                await manager.notify_capacity_change(step + 2)  # the number of the next step, counted from 1
        return count

    async def restarted() -> int:
        manager = new_manager()
        # A restart loses the samples that are generated and not yet trained on.
        manager.load_state_from_checkpoint(finished + 1)
        return await session(manager, finished, finished * rows)

    return {"admitted": asyncio.run(session(new_manager(), 0, 0)), "resumed": asyncio.run(restarted())}


class PromptLoader:
    """A stateful data loader that yields one prompt at a time, in order."""

    def __init__(self, rows: int) -> None:
        """Store the number of prompts."""
        self.rows = rows

    def __len__(self) -> int:
        """The number of prompts."""
        return self.rows

    def __iter__(self) -> Iterator[list[dict[str, str]]]:
        """Batches of one prompt each, as in the trainer's loader."""
        return iter([[{"uid": str(row)}] for row in range(self.rows)])

    def state_dict(self) -> dict[str, int]:
        """An empty state: every iteration starts at the first prompt."""
        return {}

    def load_state_dict(self, _state: Mapping[str, int]) -> None:
        """Do nothing."""


def count_draws(make: Callable[..., Any], rows: int, mini_batch: int, after: int) -> list[float]:
    """Draw prompts over two epochs, with a restart after ``after`` mini-batches; return each one's draws per epoch."""
    draws = dict.fromkeys(map(str, range(rows)), 0)

    async def consume(loader: Any, count: int | None = None) -> None:  # noqa: ANN401 - the target's class
        while count is None or count > 0:
            uids = []
            for _ in range(mini_batch):
                prompts = await loader.get_next_non_consumed_data()
                uids += [] if prompts is None else [prompts[0]["uid"]]
            if not uids:
                return
            await loader.mark_consumed_uids(uids)
            for uid in uids:
                draws[uid] += 1
            count = None if count is None else count - 1

    async def session() -> None:
        loader = make(PromptLoader(rows), mini_batch)
        await consume(loader, after)
        restored = make(PromptLoader(rows), mini_batch)
        restored.load_state_from_checkpoint(set(loader.get_consumed_uids_list()))
        await consume(restored)
        await restored.reset_at_epoch_end()
        await consume(restored)

    asyncio.run(session())
    return [count / 2 for count in draws.values()]


def fill_mini_batches(inputs: Inputs) -> str:
    """The reason to skip a batch whose prompts do not fill mini-batches of two; empty otherwise."""
    return f"{inputs.batch.rows} prompts do not fill mini-batches of 2" if inputs.batch.rows % 2 else ""


def _rows(inputs: Inputs) -> int:
    return inputs.batch.rows


def _step(path: str, call: Callable[..., Any], **more: Codec) -> Step:
    arguments: dict[str, Codec] = {"make": Constant(Function(path)), "rows": Derived(_rows), **more}
    return Step(call=call, name="session", arguments=arguments)


def _manager(target: Target) -> Boundary:
    names = ("finished", "max_staleness", "filtered")
    can_filter = target.has(f"{MANAGER}.on_rollout_filtered")
    session = Use("session")
    return Boundary(
        path=MANAGER,
        stage="batch",
        steps=(_step(MANAGER, count_admitted, **knobs(*names)),),
        reads=frozenset({"group"}),
        outputs={
            "admitted": Output("", "samples", "admitted", at=session["admitted"]),
            "admitted after a restart": Output("", "samples", "admitted", at=session["resumed"]),
        },
        settings={name: values for name, values in SETTINGS.items() if can_filter or not values["filtered"]},
        claims=_MANAGER,
        reach="trainer.fully_async, every step",
    )


def _loader(_target: Target) -> Boundary:
    step = _step(LOADER, count_draws, mini_batch=Constant(2), after=Knob("after"))
    return Boundary(
        path=LOADER,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={"uses": Output("B", "", "uses", at=Use("session"), form=PerRow("list"))},
        settings={"not restarted": {"after": 0}, "restarted": {"after": 1}},
        claims=_LOADER,
        reach="trainer.fully_async, every step; a run that is restarted",
        requires=(fill_mini_batches,),
    )
