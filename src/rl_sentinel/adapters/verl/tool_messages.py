"""Boundaries of verl's agent loop with tools: messages that an interaction gets, and the cut of long tool results."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.chat_template import ChatTokenizer, Message
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_script import Script, differing, ending_with_reply, play, turns_of
from rl_sentinel.adapters.verl.conversations import a_few_turns
from rl_sentinel.adapters.verl.tool_turns import LOOPS, ROLLOUT, loop_step, plays
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

LOOP = next(iter(LOOPS))

#: The two halves of a long tool result. Each has LONG characters, with the number of the message.
LEFT, RIGHT, LONG = "head", "tail", 5

_CUT, _FILE = "multi_turn.tool_response_truncate_side", "multi_turn.interaction_config_path=FILE"

#: Setting -> the side of the cut (none: an interaction), the number of calls per turn, and the option that reaches it.
SETTINGS: Mapping[str, tuple[Settings, str]] = {
    "an interaction": ({"side": "", "calls": 1}, f"{_FILE}, and one tool call per turn"),
    "an interaction, several calls": ({"side": "", "calls": 8}, f"{_FILE}, and several tool calls in a turn"),
    "results cut at the left": ({"side": "left", "calls": 8}, f"{_CUT}=left, with results that are too long"),
    "results cut at the right": ({"side": "right", "calls": 8}, f"{_CUT}=right, with results that are too long"),
}

_DOCS = (
    "interactions/base.py, generate_response: messages are those of the conversation; rollout.yaml: "
    "max_tool_response_length and tool_response_truncate_side; cut at the left, a text keeps its end, as in "
    "utils/torch_functional.py, postprocess_data"
)
_PRODUCED = "agent_loop.py, _run_agent_loop: raw_prompt and extra_info of the data set"


def message_differences(  # noqa: PLR0913 - classes of the target, and a setting
    loop: Any,  # noqa: ANN401 - a class of the target
    response: Callable[..., Any],
    call: Callable[..., Any],
    config: Any,  # noqa: ANN401 - the trainer's configuration
    masks: list[list[int]],
    side: str,
    calls: int,
) -> list[float]:
    """Count, per conversation, the tokens that an interaction gets wrong, or the halves of results that are wrong."""
    counts = []
    for mask in masks:
        messages = with_few_calls(ending_with_reply(mask), calls)
        script = Script(turns_of(lengthened(messages) if side else messages), ChatTokenizer("be brief"), response, call)
        if side:
            play(loop, script, messages[0], config, max_tool_response_length=LONG, tool_response_truncate_side=side)
            counts.append(halves_off(script, messages, side))
        else:
            play(loop, script, messages[0], config, interaction_config_file="interactions.yaml")
            render = script.tokenizer.apply_chat_template
            counts.append(differing(render(script.heard), render(messages)))
    return counts


def with_few_calls(messages: list[Message], calls: int) -> list[Message]:
    """The messages, without the tool results after the first ``calls`` ones of a turn."""
    turns = [list(turn) for _, turn in groupby(messages, key=lambda one: str(one["role"]))]
    return [one for turn in turns for one in (turn[:calls] if turn[0]["role"] == "tool" else turn)]


def lengthened(messages: list[Message]) -> list[Message]:
    """The messages, with long tool results: two halves with the number of the message."""
    return [
        {**one, "content": f"{LEFT}{n}{RIGHT}{n}"} if one["role"] == "tool" else one for n, one in enumerate(messages)
    ]


def halves_off(script: Script, messages: list[Message], side: str) -> float:
    """The number of halves of tool results in the last request that the cut at ``side`` drops, or that are missing."""
    seen = re.findall(rf"(?:{LEFT}|{RIGHT})\d+", script.tokenizer.decode(script.prompts[-1]))
    kept = RIGHT if side == "left" else LEFT
    return differing(seen, [f"{kept}{n}" for n, one in enumerate(messages) if one["role"] == "tool"])


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loop, if it has interactions or cuts the results of tools."""
    if not plays(target, LOOP):
        return
    source = inspect.getsource(target.find(LOOP))
    for name, (settings, option) in SETTINGS.items():
        if ("truncate_side" if settings["side"] else "interaction_config_file") in source:
            yield from try_bind(target, LOOP, "batch", partial(_messages, target, name, settings, option))


def _messages(target: Target, name: str, settings: Settings, option: str) -> Iterator[Boundary]:
    more = knobs("side", "calls")
    step = loop_step(target, LOOP, message_differences, more, producer=_PRODUCED, response_length=200)
    counted = "halves of cut results that differ"
    counted = counted if settings["side"] else "tokens of the interaction's messages that differ"
    yield Boundary(
        path=f"{LOOP}.run",
        stage="batch",
        steps=(step,),
        reads=frozenset({"mask", "length"}),
        outputs={counted: Output("B", "tokens", "tokens_off_template", at=Use("differ"), form=PerRow("list"))},
        settings={name: settings},
        claims=claims(_DOCS),
        reach=f"{ROLLOUT}.{option}",
        requires=(no_empty_response,),
        domain=a_few_turns,
    )
