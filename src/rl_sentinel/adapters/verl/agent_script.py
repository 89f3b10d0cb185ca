"""Agent loops of verl played from a script: a fake server, tool parser and tool, whose replies are known."""

import asyncio
import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.chat_template import END, REPLY, ChatTokenizer, Message
from rl_sentinel.adapters.kit.conversations import conversation
from rl_sentinel.adapters.source_reads import remembered

#: The name of the tool, and of the interaction.
TOOL = "lookup"


@dataclass
class Script:
    """A fake server, tool parser and tool in one object, for a conversation with known replies and tool results.

    Attributes:
        turns: replies, each with the results of the tools that it calls.
        tokenizer: the tokenizer of the conversation.
        response: builds what the tool returns.
        call: builds a tool call, which the parser returns.
        sampled: number of tokens sampled so far.
        routed: number of tokens of the last request and its reply.
        turn: index of the last reply.
        stop_token_ids: an attribute of tool parsers; empty.
        name: name of the tool.
        tool_schema: an attribute of tools; None.
        prompts: token ids of the requests so far.
        heard: messages that the interaction got.
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
    prompts: list[list[int]] = field(default_factory=list)
    heard: list[Message] = field(default_factory=list)

    async def generate(self, *, prompt_ids: list[int], **_request: object) -> SimpleNamespace:
        """Tokens and log-probs of the next reply, and the experts of all tokens so far: each expert is a position."""
        self.turn += 1
        self.prompts.append(list(prompt_ids))
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

    async def start_interaction(self, *_about: object, **_options: object) -> None:
        """Do nothing: the interaction has no state."""

    async def generate_response(
        self, _request: str, messages: list[Message], **_options: object
    ) -> tuple[bool, str, float, dict[str, Any]]:
        """Record the messages of the conversation, and end it."""
        self.heard = copy.deepcopy(messages)
        return True, "bye", 0.0, {}


class ParserFake:
    """A fake of the class of tool parsers; after construction, the loop gets its parser from the script."""

    @staticmethod
    def get_tool_parser(*_about: object) -> None:
        """Return no parser."""


def untimed(name: str, timings: dict[str, float]) -> AbstractContextManager[None]:
    """A timer that measures nothing: it sets an absent entry to 0."""
    timings.setdefault(name, 0.0)
    return nullcontext()


def ending_with_reply(mask: list[int]) -> list[Message]:
    """The conversation of a mask, whose last message is a reply."""
    messages = conversation(mask)
    return messages if messages[-1]["role"] == REPLY else [*messages, {"role": REPLY, "content": "done"}]


def differing(observed: Sequence[Any], expected: Sequence[Any]) -> float:
    """The number of positions at which two lists differ."""
    unlike = sum(o != e for o, e in zip(observed, expected, strict=False))
    return float(unlike + abs(len(observed) - len(expected)))


def turns_of(messages: list[Message]) -> list[tuple[str, list[str]]]:
    """The replies of a conversation, each with the tool results after it."""
    turns: list[tuple[str, list[str]]] = []
    for message in messages[1:]:
        if message["role"] == REPLY:
            turns.append((message["content"], []))
        else:
            turns[-1][1].append(message["content"])
    return turns


@remembered
def _unwraps(kind: type) -> bool:
    """Whether a loop gets the data set's configuration in a wrapper, as in February 2026."""
    return any("dataset_config.config" in inspect.getsource(one) for one in kind.__mro__[:-1])


def play(
    kind: Any,  # noqa: ANN401 - a class of the target
    script: Script,
    question: Message,
    config: Any,  # noqa: ANN401 - of the target
    tools_kwargs: Mapping[str, Any] | None = None,
    **attributes: Any,  # noqa: ANN401 - of the loop
) -> Any:  # noqa: ANN401 - an output of the loop
    """Run an agent loop of the target on a question; server, tool parser, tool and interaction follow the script.

    ``tools_kwargs`` has the arguments of the row's tools, by tool, as the data set has them.
    """
    wrapped = SimpleNamespace(config=config.data)
    fresh = type(kind.__name__, (kind,), {"_class_initialized": False})  # some releases read the options per class

    async def run() -> Any:  # noqa: ANN401 - an output of the loop
        loop = fresh(
            trainer_config=SimpleNamespace(config=config),
            server_manager=script,
            tokenizer=script.tokenizer,
            processor=None,
            dataset_cls=object,
            dataset_config=wrapped if _unwraps(kind) else config.data,
            data_config=wrapped,
            hf_model_type="qwen2",
        )
        own = {"tools": {TOOL: script}, "tool_schemas": [], "tool_parser": script, "interaction_map": {TOOL: script}}
        vars(loop).update(own | attributes)
        about = {"interaction_kwargs": {"name": TOOL}}
        return await loop.run(
            {}, raw_prompt=[copy.deepcopy(question)], tools_kwargs=tools_kwargs or {}, extra_info=about
        )

    with redirect_stdout(None):
        return asyncio.run(run())
