"""Boundary of verl's agent loop with tools: whether each tool is created with the arguments of its row."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.chat_template import ChatTokenizer
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_script import TOOL, Script, differing, ending_with_reply, play, turns_of
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.conversations import a_few_turns
from rl_sentinel.adapters.verl.single_turn import PROMPTS
from rl_sentinel.adapters.verl.tool_messages import LOOP
from rl_sentinel.adapters.verl.tool_turns import BASE, CALL, FAKES, RESPONSE, ROLLOUT
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

#: The argument with which a row creates its tools.
ARGUMENT = "ground_truth"

_DOCS = claims(
    "examples/data_preprocess, gsm8k_multiturn_w_tool.py and gsm8k_tool_agent_loop.py: tools_kwargs in the extra_info "
    "of a row has the create_kwargs of each tool, for example the ground truth"
)
_PRODUCED = "rl_dataset.py, __getitem__: tools_kwargs of the row's extra_info; agent_loop.py passes the row's fields on"


class Sampled(list[int]):
    """Sampled tokens, as early servers return them; also an object with fields, as later ones do."""


class Creating(Script):
    """A script that records the arguments with which its tool is created."""

    created: list[Any]

    async def generate(self, *, prompt_ids: list[int], **request: object) -> Any:  # noqa: ANN401 - as both servers
        """The reply of the base class, which is also a list of tokens."""
        reply = await super().generate(prompt_ids=prompt_ids, **request)
        sampled = Sampled(reply.token_ids)
        vars(sampled).update(vars(reply))
        return sampled

    async def create(self, *_about: object, **options: Any) -> tuple[str, Any]:  # noqa: ANN401 - any argument
        """An instance of the tool."""
        self.created.append(options.get("create_kwargs", options).get(ARGUMENT))
        return await super().create()


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the loop, in releases whose data set has arguments for the tools of a row."""
    if not all(map(target.has, (LOOP, BASE, CALL, PROMPTS))) or target.fails(LOOP):
        return
    rows, loop = inspect.getsource(target.module(PROMPTS.rpartition(".")[0])), inspect.getsource(target.find(LOOP))
    if "tools_kwargs" in rows and "raw_prompt" in loop and ".create(" in loop:
        yield from try_bind(target, LOOP, "batch", lambda: [_creation(target)])


def text_of_result(text: str = "") -> str:
    """The result of a tool, in releases whose tools return texts."""
    return text


def created_without(
    loop: Any,  # noqa: ANN401 - a class of the target
    response: Callable[..., Any] | None,
    call: Callable[..., Any],
    config: Any,  # noqa: ANN401 - the trainer's configuration
    masks: list[list[int]],
) -> list[float]:
    """Count, per conversation, the tools that are created without the row's argument, or not at all."""
    counts = []
    for row, mask in enumerate(masks):
        messages = ending_with_reply(mask)
        script = Creating(turns_of(messages), ChatTokenizer("be brief"), response or text_of_result, call)
        script.created = []
        play(loop, script, messages[0], config, {TOOL: {"create_kwargs": {ARGUMENT: row}}})
        calls = sum(one["role"] == "tool" for one in messages)
        counts.append(differing(script.created, [row] * calls))
    return counts


def _creation(target: Target) -> Boundary:
    sizes = constants(
        **{
            f"{ROLLOUT}.prompt_length": 200,
            f"{ROLLOUT}.response_length": 200,
            f"{ROLLOUT}.multi_turn.max_parallel_calls": 8,
        }
    )
    response = functions(response=RESPONSE) if target.has(RESPONSE) else {"response": Constant(None)}
    step = Step(
        call=created_without,
        name="off",
        arguments={
            **functions(loop=LOOP, call=CALL),
            **response,
            "config": default_config(target, "", sizes),
            "masks": EachRow(RowTokens("mask", "int")),
        },
        fakes=present(target, FAKES),
        remembered=True,
        produced_by={"masks": _PRODUCED},
    )
    return Boundary(
        path=f"{LOOP}.run",
        stage="batch",
        steps=(step,),
        reads=frozenset({"mask", "length"}),
        outputs={
            "tools without the arguments of their row": Output(
                "B", "samples", "columns_of_others", at=Use("off"), form=PerRow("list")
            )
        },
        settings={"arguments of the tools": {}},
        claims=_DOCS,
        reach="a data set with tools_kwargs, multi_turn.tool_config_path=FILE",
        requires=(no_empty_response,),
        domain=a_few_turns,
    )
