"""slime's rollout loop: how often each sample is trained, with dynamic sampling and the hook for all samples."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived, functions
from rl_sentinel.adapters.slime.generation import MODULES, ONE_VERSION, room_of, samples_of
from rl_sentinel.adapters.slime.rollout_fakes import Server, arguments, serving
from rl_sentinel.adapters.slime.samples import REWARDS, SAMPLE, module_source
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Inputs

#: Setting -> options; ``filtered`` adds a filter that drops every other prompt.
FAMILIES: Mapping[str, Settings] = {
    "default": {},
    "filtered": {"filtered": True},
    "reward by key": REWARDS["reward by key"],
}

DROP, HOOK = f"{__name__}.drop_every_other_prompt", f"{__name__}.note_all_samples"
#: The option of the hook that receives all samples, also dropped ones; early releases lack it.
ALL_SAMPLES = "rollout_all_samples_process_path"

_PRODUCER = "slime/rollout/data_source.py, get_samples: the prompts of an epoch in order, one rollout after the other"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries that count how often each sample is trained, and how often it is passed to the hook."""
    module = next((name for name in MODULES if target.has(f"{name}.generate_rollout_async")), "")
    if not module or target.fails(module):
        return
    hook = ALL_SAMPLES in module_source(target, module)
    yield from bindable(target, _loop(f"{module}.generate_rollout_async", hook=hook))


def drop_every_other_prompt(_args: object, samples: list[Any], **_more: object) -> bool:
    """A filter that keeps the second prompt, the fourth, and so on, and drops the other prompts."""
    return int(samples[0].index) // len(samples) % 2 == 1


def note_all_samples(args: Any, groups: list[list[Any]], *_source: object) -> None:  # noqa: ANN401 - a namespace
    """Count the samples that the hook receives."""
    args.noted.update(sample.index for group in groups for sample in group)


class PromptSource:
    """A fake data source, which returns prompts in order. Some releases call it as a function, others its methods."""

    def __init__(self, groups: list[list[Any]]) -> None:
        """Store the samples of each prompt."""
        self.left = list(groups)

    def get_samples(self, count: int) -> list[list[Any]]:
        """The next prompts."""
        batch, self.left = self.left[:count], self.left[count:]
        return batch

    __call__ = get_samples

    def add_samples(self, groups: list[list[Any]]) -> None:
        """Put back samples that were not trained, before the other samples."""
        self.left = [*groups, *self.left]


def uses_in_rollouts(  # noqa: PLR0913 - functions of the target, and the arguments of a run
    run: Callable[..., Any],
    sample: Callable[..., Any],
    prompts: list[list[dict[str, Any]]],
    room: int,
    options: Settings,
    hook: bool,  # noqa: FBT001 - whether the release has it
) -> dict[str, list[float]]:
    """Run rollouts; count how often each sample is trained and passed to the hook, so that 1 is always correct.

    Each rollout trains one prompt. A sample of a prompt that the filter drops must not be trained, and counts 1 if it
    is not trained. For prompts that are not drawn, the number of hook calls counts as 1.
    """
    groups, server = samples_of(sample, prompts)
    server.room = room
    kept = [number for number in range(len(groups)) if not options.get("filtered") or number % 2 == 1]
    noted = Counter[int]()
    args = arguments(
        room,
        len(groups[0]),
        rollout_batch_size=1,
        over_sampling_batch_size=1,
        dynamic_sampling_filter_path=DROP if options.get("filtered") else None,
        reward_key=options.get("reward_key"),
        noted=noted,
        **({ALL_SAMPLES: HOOK} if hook else {}),
    )
    trained = Counter(row.index for group in _rollouts(run, args, server, groups, len(kept)) for row in group)
    rows = [(number, row.index) for number, group in enumerate(groups) for row in group]
    last_drawn = max(kept, default=-1)
    return {
        "trained": [float(trained[row]) if number in kept else float(trained[row] == 0) for number, row in rows],
        "noted": [float(noted[row]) if number <= last_drawn else 1.0 for number, row in rows],
    }


def _rollouts(
    run: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    server: Server,
    groups: list[list[Any]],
    count: int,
) -> list[list[Any]]:
    source, trained = PromptSource(groups), list[list[Any]]()
    with serving(run, server) as module:
        for number in range(count):
            returned: Any = asyncio.run(_rollout(module, run, args, number, source))
            samples: Any = returned[0] if isinstance(returned, tuple) else returned
            trained += getattr(samples, "samples", samples)
    return trained


async def _rollout(
    module: dict[str, Any],
    run: Callable[..., Any],
    args: Any,  # noqa: ANN401
    number: int,
    source: PromptSource,
) -> Any:  # noqa: ANN401
    state = module["GenerateState"](args)
    state.semaphore = asyncio.Semaphore(args.sglang_server_concurrency)  # each rollout here has its own event loop
    return await run(args, number, source)


def _filter_keeps_a_prompt(inputs: Inputs) -> str:
    """The reason to skip a batch where the filter drops the only prompt; empty otherwise.

    A rollout continues until the filter keeps a prompt.
    """
    alone = bool(inputs.settings.get("filtered")) and len(group_sizes(inputs)) == 1
    return "the filter drops the only prompt, and slime draws prompts until it keeps one" if alone else ""


def _loop(path: str, *, hook: bool) -> Boundary:
    form = PerRow("list")
    outputs = {"trained": Output("B", "samples", "uses", at=Use("uses")["trained"], form=form)}
    if hook:
        outputs["all samples"] = Output("B", "samples", "uses", at=Use("uses")["noted"], form=form)
    return one_call(
        path=path,
        stage="batch",
        call=uses_in_rollouts,
        name="uses",
        arguments={
            **functions(run=path, sample=SAMPLE),
            "prompts": EachPrompt(EachRow(Table(ONE_VERSION))),
            "room": Derived(room_of),
            "options": AllSettings(),
            "hook": Constant(hook),
        },
        produced_by={"prompts": _PRODUCER},
        reads=frozenset({"group", "length"}),
        outputs=outputs,
        settings=FAMILIES,
        reach="every run; --reward-key, --dynamic-sampling-filter-path, --rollout-all-samples-process-path",
        requires=(no_empty_response, prompts_are_contiguous, groups_are_equal, _filter_keeps_a_prompt),
    )
