"""Boundaries of verl's agent loops, of one turn or with tools.

Tokens and mask are compared with the chat template, log-probs and experts with what was sampled.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.chat_template import END, ChatTokenizer, Message
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_script import (
    ParserFake,
    Script,
    differing,
    ending_with_reply,
    play,
    turns_of,
    untimed,
)
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.conversations import a_few_turns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

_FOLDER = "verl.experimental.agent_loop"
ROLLOUT = "actor_rollout_ref.rollout"
BASE = f"{_FOLDER}.agent_loop.AgentLoopBase"
RESPONSE, CALL = "verl.tools.schemas.ToolResponse", f"{_FOLDER}.tool_parser.FunctionCall"
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

_DOCS = (
    "agent_loop.py, comments: response_mask 1 for tokens of the model and 0 for tool responses; response_logprobs of "
    "the response tokens; tool_agent_loop.py, run: all cut at the response length"
)
_PRODUCED = (
    "agent_loop.py, _run_agent_loop: raw_prompt of the data set, server and tokenizer in the constructor; the server "
    "returns the sampled tokens with the end token, and their log-probs"
)


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
        messages = ending_with_reply(mask)
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
    return differing(places, list(range(min(routed, tokens))))


def count_wrong(
    tokenizer: ChatTokenizer,
    messages: list[Message],
    output: Any,  # noqa: ANN401 - of the target
    limit: int,
) -> tuple[float, float, float]:
    """The number of tokens, mask values and log-probs of an output that differ from the conversation.

    The response may end at the limit, or at the end of a reply if the conversation is longer than the limit. Masks and
    log-probs are compared only if no token differs, or if only the newlines after replies are missing.
    """
    parts = tokenizer.parts(messages)[:-1]
    whole = _unlike(tokenizer, parts, messages[0], output, limit)
    if not whole[0]:
        return whole
    joined = [part for n, part in enumerate(parts) if part[0] != "\n" or not (n and parts[n - 1][1])]
    return (whole[0], *_unlike(tokenizer, joined, messages[0], output, limit)[1:])


def _unlike(
    tokenizer: ChatTokenizer,
    texts: list[tuple[str, bool]],
    question: Message,
    output: Any,  # noqa: ANN401 - of the target
    limit: int,
) -> tuple[float, float, float]:
    """The counts of :func:`count_wrong` for a conversation of these texts. Each text has a flag: True if it trains."""
    parts = [(tokenizer(text)["input_ids"], trains) for text, trains in texts]
    tokens = [token for part, _ in parts for token in part]
    sampled = [trains for part, trains in parts for _ in part]
    prompt = len(tokenizer.apply_chat_template([question], add_generation_prompt=True))
    numbers = [-(sum(sampled[: n + 1])) / 8 if sampled[n] else 0.0 for n in range(len(sampled))]
    ids, length = list(output.response_ids), len(output.response_ids)
    ends = length == limit or (ids[-1:] == tokenizer(END)["input_ids"] and len(tokens) - prompt > limit)
    end = prompt + length if ends and length <= limit else min(len(tokens), prompt + limit)
    unlike = differing([*output.prompt_ids, *ids], tokens[:end])
    if unlike:
        return unlike, 0.0, 0.0
    expected = slice(prompt, end)
    masks = differing([bool(one) for one in output.response_mask], sampled[expected])
    return 0.0, masks, differing(list(output.response_logprobs or []), numbers[expected])


#: Names of the loops -> the fakes in their place.
FAKES: Mapping[str, Callable[..., Any]] = {
    f"{TOOLS}.ToolParser": ParserFake,
    f"{TOOLS}.simple_timer": untimed,
    f"{SINGLE}.simple_timer": untimed,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loops whose server returns token ids with their log-probs."""
    for path, settings in LOOPS.items():
        if plays(target, path):
            yield from try_bind(target, path, "batch", partial(_loops, target, path, settings))


def plays(target: Target, path: str) -> bool:
    """Whether the release has this loop and can import it, and the loop's source reads ``log_probs``.

    The server of such a loop returns token ids with their log-probs.
    """
    needed = (path, BASE, RESPONSE)
    if not all(map(target.has, needed)) or target.fails(path):
        return False
    return "log_probs" in inspect.getsource(target.find(path))


def loop_step(  # noqa: PLR0913 - a loop, the function that plays it, and how it is called
    target: Target,
    path: str,
    call: Callable[..., Any],
    more: Mapping[str, Codec],
    *,
    producer: str,
    response_length: int | None = None,
) -> Step:
    """A step that plays the conversations of masks through the agent loop at ``path``, with room for all prompts.

    Without a ``response_length``, responses have the length of the default configuration.
    """
    sizes: dict[str, Codec] = {
        f"{ROLLOUT}.prompt_length": Constant(200),
        f"{ROLLOUT}.multi_turn.max_parallel_calls": Constant(8),
    }
    if response_length is not None:
        sizes[f"{ROLLOUT}.response_length"] = Constant(response_length)
    return Step(
        call=call,
        name="differ",
        arguments={
            **functions(loop=path, response=RESPONSE, call=CALL),
            "config": default_config(target, "", sizes),
            "masks": EachRow(RowTokens("mask", "int")),
            **more,
        },
        fakes=present(target, FAKES),
        remembered=True,
        produced_by={"masks": producer},
    )


def _loops(target: Target, path: str, settings: Mapping[str, Settings]) -> Iterator[Boundary]:
    keeps_experts = "routed_experts" in inspect.getsource(target.find(path))
    more = {**knobs("added", "limit"), "single": Constant(value=path.startswith(SINGLE))}
    step = loop_step(target, path, played_differences, more, producer=_PRODUCED)
    for name, setting in settings.items():
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
