"""SkyRL's fully asynchronous trainer: how far generation may run ahead, and which prompts remain after a restart."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

MODULE = "skyrl.train.fully_async_trainer"
MANAGER, LOADER = f"{MODULE}._AsyncStalenessManager", f"{MODULE}._AsyncDataloader"

#: More generations at a time than any session of a case starts.
MANY = 10_000

#: Turns of the event loop after which a generation counts as held back.
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
    """The manager of submissions, and the data loader with its record of consumed prompts."""
    for path, make in ((MANAGER, _admitting), (LOADER, _loading)):
        if target.has(path):
            if why := target.fails(path):
                yield Unbound(path, "batch", why)
            else:
                yield from bindable(target, make(target))


async def _admit(manager: Any, throws: int) -> int:  # noqa: ANN401 - the target's class
    """Start generations until one is held back, and finish each; of the first ones, some are thrown away."""
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
        if throws > 0:
            await manager.on_rollout_filtered()
            throws, admitted = throws - 1, admitted - 1


def admitted(make: Callable[..., Any], rows: int, finished: int, max_staleness: int, filtered: int) -> Any:  # noqa: ANN401
    """Samples that were admitted after so many updates, without those thrown away; and after a restart in between."""

    def made() -> Any:  # noqa: ANN401 - the target's class
        sizes = {"max_concurrent_generation_groups": MANY, "mini_batch_size": rows}
        return make(**sizes, max_staleness_steps=max_staleness)

    async def session(manager: Any, first: int, count: int) -> int:  # noqa: ANN401 - the target's class
        for step in range(first, finished + 1):
            count += await _admit(manager, filtered)
            if step < finished:
                await manager.notify_capacity_change(step + 2)  # the step that is being worked on, from 1
        return count

    async def restarted() -> int:
        manager = made()
        # What was generated and not trained on is lost with the process.
        manager.load_state_from_checkpoint(finished + 1)
        return await session(manager, finished, finished * rows)

    return {"admitted": asyncio.run(session(made(), 0, 0)), "resumed": asyncio.run(restarted())}


class Prompts:
    """A stateful loader of one prompt at a time, in order."""

    def __init__(self, rows: int) -> None:
        """Number the prompts."""
        self.rows = rows

    def __len__(self) -> int:
        """How many prompts there are."""
        return self.rows

    def __iter__(self) -> Iterator[list[dict[str, str]]]:
        """Each prompt in a batch of its own, as the trainer builds its loader."""
        return iter([[{"uid": str(row)}] for row in range(self.rows)])

    def state_dict(self) -> dict[str, int]:
        """An initial state."""
        return {}

    def load_state_dict(self, _state: Mapping[str, int]) -> None:
        """Begin anew with the next iteration."""


def loaded(make: Callable[..., Any], rows: int, mini_batch: int, after: int) -> list[float]:
    """How often each prompt is drawn in two epochs, by two; the process is restarted after some mini-batches."""
    drawn = dict.fromkeys(map(str, range(rows)), 0)

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
                drawn[uid] += 1
            count = None if count is None else count - 1

    async def session() -> None:
        loader = make(Prompts(rows), mini_batch)
        await consume(loader, after)
        restored = make(Prompts(rows), mini_batch)
        restored.load_state_from_checkpoint(set(loader.get_consumed_uids_list()))
        await consume(restored)
        await restored.reset_at_epoch_end()
        await consume(restored)

    asyncio.run(session())
    return [count / 2 for count in drawn.values()]


def pairs_up(inputs: Inputs) -> str:
    """The prompts fill whole mini-batches of two."""
    return f"{inputs.batch.rows} prompts do not fill mini-batches of 2" if inputs.batch.rows % 2 else ""


def _rows(inputs: Inputs) -> int:
    return inputs.batch.rows


def _step(path: str, call: Callable[..., Any], **more: Codec) -> Step:
    arguments: dict[str, Codec] = {"make": Constant(Function(path)), "rows": Derived(_rows), **more}
    return Step(call=call, name="session", arguments=arguments)


def _admitting(target: Target) -> Boundary:
    names = ("finished", "max_staleness", "filtered")
    throws = target.has(f"{MANAGER}.on_rollout_filtered")
    made = Use("session")
    return Boundary(
        path=MANAGER,
        stage="batch",
        steps=(_step(MANAGER, admitted, **{name: Knob(name) for name in names}),),
        reads=frozenset({"group"}),
        outputs={
            "admitted": Output("", "samples", "admitted", at=made["admitted"]),
            "admitted after a restart": Output("", "samples", "admitted", at=made["resumed"]),
        },
        settings={name: one for name, one in SETTINGS.items() if throws or not one["filtered"]},
        claims=_MANAGER,
        reach="trainer.fully_async, every step",
    )


def _loading(_target: Target) -> Boundary:
    step = _step(LOADER, loaded, mini_batch=Constant(2), after=Knob("after"))
    return Boundary(
        path=LOADER,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={"uses": Output("B", "", "uses", at=Use("session"), form=PerRow("list"))},
        settings={"not restarted": {"after": 0}, "restarted": {"after": 1}},
        claims=_LOADER,
        reach="trainer.fully_async, every step; a run that is restarted",
        requires=(pairs_up,),
    )
