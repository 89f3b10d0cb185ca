"""TRL's tool-call metrics over ranks: calls per completion, and the fraction of calls that fail."""

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import EachCut, Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.requirements import equal_parts, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import TRAINERS, WITH_TOOLS, trainer
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_train, returned_names
from rl_sentinel.adapters.trl.tiny_trainer import END
from rl_sentinel.adapters.trl.tool_loop import answered, in_order, prompt_ids, with_tools
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: The first token of a reply that calls the tool, that calls a missing tool, and that calls no tool.
CALLS, FAILS, PLAIN = 6, 7, 8

#: Logged name -> what it counts.
LOGGED = {
    "tools/call_frequency": Output("", "", "trained.mean", over="all"),
    "tools/failure_frequency": Output("", "", "unscored.mean", over="live"),
}

_DOCS = (
    "docs/source/grpo_trainer.md, Logged metrics: the tool calls of a completion on average, and the share of the "
    "calls that fail"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the logged metrics of tool calls, in releases that log such metrics."""
    for kind in WITH_TOOLS:
        path = f"{TRAINERS[kind]}._generate"
        if not target.has(path) or target.fails(path):
            continue
        source = source_of(target.find(path))
        logged = {name: output for name, output in LOGGED.items() if f'["{name}"]' in source}
        if logged:
            yield from bindable(target, _counts(target, kind, path, logged))


def _counts(target: Target, kind: str, path: str, logged: dict[str, Output]) -> Boundary:
    module = path.rsplit(".", 2)[0]
    fakes = {f"{module}.parse_response": parsed} if hasattr(target.module(module), "parse_response") else {}
    parts = {
        "trainer": trainer(kind, {}),
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1], frozenset({"ranks"})),
        "lengths": ResponseMask(NoPadding()),
        "trained": Column("mask", NoPadding()),
        "scored": Column("scored", PerRow("list")),
    }
    at = {"trainer": "", "rank": "accelerator.process_index", "ranks": "accelerator.num_processes"}
    at |= {name: f"replies.{name}" for name in ("lengths", "trained", "scored")}
    place = Use("first").attribute("_metrics")["train"]
    return one_call(
        path=path,
        stage="metric",
        call=count_calls,
        name="first",
        arguments={
            "entry": Constant(Function(path)),
            "trainers": EachCut(Object(ready_to_call, parts, at=at), "ranks"),
        },
        fakes=fakes,
        produced_by={"trainers": "grpo_trainer.py, _generate_and_score_completions: the prompts of a rank's rows"},
        outputs={
            name: Output("", "", o.quantity, over=o.over, at=place[name], form=Logged()) for name, o in logged.items()
        },
        settings={"logged, tools": {}},
        claims=claims(_DOCS),
        reach="tools",
        requires=(equal_parts, no_empty_response),
    )


def parsed(_tokenizer: object, ids: list[int], *_arguments: object, **_more: object) -> dict[str, Any]:
    """The message of a reply, with the tool call that its first token encodes."""
    message: dict[str, Any] = {"role": "assistant", "content": "w3"}
    names = {CALLS: "look", FAILS: "missing"}
    if ids[0] in names:
        message["tool_calls"] = [{"type": "function", "function": {"name": names[ids[0]], "arguments": {}}}]
    return message


def ready_to_call(trainer: Any, rank: int, ranks: int, trained: Tensor, scored: list[bool], **more: Tensor) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of a rank. A reply calls a tool if its row trains; the call fails if the row is not scored."""
    live = trained.any(1).tolist()
    first = [(CALLS if good else FAILS) if calls else PLAIN for calls, good in zip(live, scored, strict=True)]
    ready = with_tools(ready_to_train(trainer, 1, None, rank, ranks), len(first))
    ready.processing_class = ready._tokenizer = copy(trainer.processing_class)  # noqa: SLF001 - where the trainer has it
    ready.processing_class.response_schema = {}  # replies are parsed only if there is a schema
    ready.replies = SimpleNamespace(trained=trained, scored=scored, **more)
    order = returned_names(type(trainer)._generate_single_turn)  # noqa: SLF001
    turns = iter([[[token, END] for token in first]])
    ready._generate_single_turn = partial(replies, order, trainer.processing_class, turns)  # noqa: SLF001 - where it samples
    return ready


def replies(
    order: tuple[str, ...],
    tokenizer: Any,  # noqa: ANN401 - a tokenizer
    first: Iterator[list[list[int]]],
    prompts: list[Any],
    *_more: object,
    **_options: object,
) -> Any:  # noqa: ANN401 - as the method
    """The replies of the first turn. After each tool result, a reply without a tool call."""
    sampled, read = next(first, None), [prompt_ids(tokenizer, prompt) for prompt in prompts]
    return answered(order, tokenizer, read) if sampled is None else in_order(order, read, sampled)


def count_calls(entry: Callable[..., Any], trainers: list[Any]) -> Any:  # noqa: ANN401 - a trainer
    """Let all ranks sample replies and call tools, and return the trainer of rank 0."""
    prompts = [[[{"role": "user", "content": "w1"}] for _ in ready.replies.scored] for ready in trainers]
    run_on_ranks(len(trainers), lambda rank: entry(trainers[rank], prompts[rank]))
    return trainers[0]
