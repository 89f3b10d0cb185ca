"""Boundaries of verl's agent loops, of one turn or with tools.

Tokens and mask are compared with the chat template, log-probs and experts with what was sampled.
"""

import asyncio
import copy
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.chat_template import END, REPLY, ChatTokenizer, Message
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.conversations import conversation
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import try_bind
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.conversations import a_few_turns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

_FOLDER = "verl.experimental.agent_loop"
BASE = f"{_FOLDER}.agent_loop.AgentLoopBase"
TOOLS, SINGLE = f"{_FOLDER}.tool_agent_loop", f"{_FOLDER}.single_turn_agent_loop"
LOOPS: Mapping[str, Mapping[str, Settings]] = {
    f"{TOOLS}.ToolAgentLoop": {
        "tools": {"added": "be brief", "limit": 200},
        "limit": {"added": "", "limit": 18},
    },
    f"{SINGLE}.SingleTurnAgentLoop": {"limit": {"added": "be brief", "limit": 4}},
}

#: The end of the last reply.
MORE = " and so on"

#: The name of the tool.
TOOL = "lookup"

_DOCS = (
    "agent_loop.py, comments: response_mask 1 for tokens of the model and 0 for tool responses; response_logprobs of "
    "the response tokens; tool_agent_loop.py, run: all cut at the response length"
)
_PRODUCED = (
    "agent_loop.py, _run_agent_loop: raw_prompt of the data set, server and tokenizer in the constructor; the server "
    "returns the sampled tokens with the end token, and their log-probs"
)


@dataclass
class Script:
    """A fake server, tool parser and tool in one object, for a conversation with known replies and tool results.

    ``turns`` are replies with the results of the tools that they call; ``response`` and ``call`` build what the tool
    and the parser return.
    """

    turns: list[tuple[str, list[str]]]
    tokenizer: ChatTokenizer
    response: Callable[..., Any]
    call: Callable[..., Any]
    sampled: int = 0
    routed: int = 0
    turn: int = -1
    stop_token_ids: list[int] = field(default_factory=list)
    name: str = TOOL
    tool_schema: Any = None

    async def generate(self, *, prompt_ids: list[int], **_request: object) -> SimpleNamespace:
        """Tokens and log-probs of the next reply, and the experts of all tokens so far: each expert is a position."""
        self.turn += 1
        tokens = self.tokenizer(self.turns[self.turn][0] + END)["input_ids"]
        log_probs = [-(self.sampled + n + 1) / 8 for n in range(len(tokens))]
        self.sampled += len(tokens)
        self.routed = len(prompt_ids) + len(tokens)
        about: dict[str, Any] = {
            "num_preempted": None,
            "routed_experts": torch.arange(self.routed).reshape(-1, 1, 1),
            "stop_reason": "completed",
            "extra_fields": {},
        }
        return SimpleNamespace(token_ids=tokens, log_probs=log_probs, **about)

    async def extract_tool_calls(self, *_about: object, **_options: object) -> tuple[str, list[Any]]:
        """The text of the reply, and a call for each result."""
        reply, results = self.turns[self.turn]
        return reply, [self.call(name=TOOL, arguments=json.dumps({"number": n})) for n, _ in enumerate(results)]

    async def create(self, *_about: object, **_options: object) -> tuple[str, Any]:
        """An instance of the tool."""
        return "instance", self.response()

    async def execute(
        self, _instance: str, arguments: dict[str, int], **_options: object
    ) -> tuple[Any, float, dict[str, Any]]:
        """The result of a call, a reward, and metrics."""
        return self.response(text=self.turns[self.turn][1][arguments["number"]]), 0.0, {}

    async def release(self, *_about: object, **_options: object) -> None:
        """Do nothing: there is nothing to release."""


class ParserFake:
    """A fake of the class of tool parsers; after construction, the loop gets its parser from the script."""

    @staticmethod
    def get_tool_parser(*_about: object) -> None:
        """Return no parser."""


def untimed(name: str, timings: dict[str, float]) -> AbstractContextManager[None]:
    """A timer without its clock."""
    timings.setdefault(name, 0.0)
    return nullcontext()


def turns_of(messages: list[Message]) -> list[tuple[str, list[str]]]:
    """The replies of a conversation, each with the tool results after it."""
    turns: list[tuple[str, list[str]]] = []
    for message in messages[1:]:
        if message["role"] == REPLY:
            turns.append((message["content"], []))
        else:
            turns[-1][1].append(message["content"])
    return turns


def play(kind: Any, script: Script, question: Message, config: Any) -> Any:  # noqa: ANN401 - classes of the target
    """Run an agent loop of the target on a question; server, tool parser and tool follow the script."""

    async def run() -> Any:  # noqa: ANN401 - an output of the loop
        loop = kind(
            trainer_config=SimpleNamespace(config=config),
            server_manager=script,
            tokenizer=script.tokenizer,
            processor=None,
            dataset_cls=object,
            dataset_config=config.data,
            data_config=SimpleNamespace(config=config.data),
            hf_model_type="qwen2",
        )
        loop.tools, loop.tool_schemas, loop.tool_parser = {TOOL: script}, [], script
        return await loop.run({}, raw_prompt=[copy.deepcopy(question)], tools_kwargs={})

    return asyncio.run(run())


def played_differences(  # noqa: PLR0913 - classes of the target, and a setting
    loop: Any,  # noqa: ANN401 - a class of the target
    response: Callable[..., Any],
    call: Callable[..., Any],
    config: Any,  # noqa: ANN401 - the trainer's configuration
    masks: list[list[int]],
    added: str,
    limit: int,
    single: bool,  # noqa: FBT001 - a property of the loop
) -> dict[str, list[float]]:
    """Count, per conversation, the tokens that differ from the template, and wrong masks, log-probs and experts."""
    config.actor_rollout_ref.rollout.response_length = limit
    counts = []
    for mask in masks:
        messages = conversation(mask)
        if messages[-1]["role"] != REPLY:
            messages.append({"role": REPLY, "content": "done"})
        messages = messages[:2] if single else messages
        messages[-1]["content"] += MORE  # a limit falls into this reply, with or without a separator before it
        tokenizer = ChatTokenizer(added)
        script = Script(turns_of(messages), tokenizer, response, call)
        output = play(loop, script, messages[0], config)
        counts.append((*count_wrong(tokenizer, messages, output, limit), wrong_experts(output, script.routed)))
    return {name: [one[n] for one in counts] for n, name in enumerate(("tokens", "masks", "logprobs", "experts"))}


def wrong_experts(output: Any, routed: int) -> float:  # noqa: ANN401 - of the target
    """The number of tokens whose experts are missing or belong to another position; ``routed`` tokens have experts."""
    experts = getattr(output, "routed_experts", None)
    places = [] if experts is None else experts[:, 0, 0].tolist()
    tokens = len(output.prompt_ids) + len(output.response_ids)
    return _count(places, list(range(min(routed, tokens))))


def count_wrong(
    tokenizer: ChatTokenizer,
    messages: list[Message],
    output: Any,  # noqa: ANN401 - of the target
    limit: int,
) -> tuple[float, float, float]:
    """The number of tokens, mask values and log-probs of an output that differ from the conversation.

    Masks and log-probs are compared only if no token differs. The response may end at the limit, or at the end of a
    reply if the conversation is longer than the limit.
    """
    parts = [(tokenizer(text)["input_ids"], trains) for text, trains in tokenizer.parts(messages)][:-1]
    tokens = [token for part, _ in parts for token in part]
    sampled = [trains for part, trains in parts for _ in part]
    prompt = len(tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True))
    numbers = [-(sum(sampled[: n + 1])) / 8 if sampled[n] else 0.0 for n in range(len(sampled))]
    ids, length = list(output.response_ids), len(output.response_ids)
    ends = length == limit or (ids[-1:] == tokenizer(END)["input_ids"] and len(tokens) - prompt > limit)
    end = prompt + length if ends and length <= limit else min(len(tokens), prompt + limit)
    unlike = _count([*output.prompt_ids, *ids], tokens[:end])
    if unlike:
        return unlike, 0.0, 0.0
    expected = slice(prompt, end)
    masks = _count([bool(one) for one in output.response_mask], sampled[expected])
    return 0.0, masks, _count(list(output.response_logprobs or []), numbers[expected])


def _count(observed: list[Any], expected: list[Any]) -> float:
    """The number of positions at which two lists differ."""
    differing = sum(o != e for o, e in zip(observed, expected, strict=False))
    return float(differing + abs(len(observed) - len(expected)))


_FAKES: Mapping[str, Callable[..., Any]] = {
    f"{TOOLS}.ToolParser": ParserFake,
    f"{TOOLS}.simple_timer": untimed,
    f"{SINGLE}.simple_timer": untimed,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loops whose constructor takes the data set's class and the server."""
    for path, settings in LOOPS.items():
        if target.has(path) and target.has(BASE) and not target.fails(path):
            names = vars(target.find(BASE))["__init__"].__code__.co_varnames
            if "dataset_cls" in names:
                yield from try_bind(target, path, "batch", partial(_loops, target, path, settings))


def _loops(target: Target, path: str, settings: Mapping[str, Settings]) -> Iterator[Boundary]:
    rollout = "actor_rollout_ref.rollout"
    keeps_experts = "routed_experts" in inspect.getsource(target.find(path))
    for name, setting in settings.items():
        config = default_config(
            target,
            "",
            {
                f"{rollout}.prompt_length": Constant(200),
                f"{rollout}.multi_turn.max_parallel_calls": Constant(8),
            },
        )
        step = Step(
            call=played_differences,
            name="differ",
            arguments={
                "loop": Constant(Function(path)),
                "response": Constant(Function("verl.tools.schemas.ToolResponse")),
                "call": Constant(Function(f"{_FOLDER}.tool_parser.FunctionCall")),
                "config": config,
                "masks": EachRow(RowTokens("mask", "int")),
                "added": Knob("added"),
                "limit": Knob("limit"),
                "single": Constant(value=path.startswith(SINGLE)),
            },
            fakes={fake: replacement for fake, replacement in _FAKES.items() if target.has(fake)},
            remembered=True,
            produced_by={"masks": _PRODUCED},
        )
        form, place = PerRow("list"), Use("differ")
        experts = Output("B", "tokens", "experts_off_sampled", at=place["experts"], form=form)
        yield Boundary(
            path=f"{path}.run",
            stage="batch",
            steps=(step,),
            reads=frozenset({"mask", "length"}),
            outputs={
                "number of tokens that differ from the template": Output(
                    "B", "tokens", "tokens_off_template", at=place["tokens"], form=form
                ),
                "number of mask values that differ from the replies": Output(
                    "B", "tokens", "mask_off_replies", at=place["masks"], form=form
                ),
                "log-probs unlike the sampled": Output(
                    "B", "tokens", "logprobs_off_sampled", at=place["logprobs"], form=form
                ),
                **({"tokens without their experts": experts} if keeps_experts else {}),
            },
            settings={name: setting},
            claims=claims(_DOCS),
            reach="every rollout of the agent loop",
            requires=(no_empty_response,),
            domain=a_few_turns,
        )
