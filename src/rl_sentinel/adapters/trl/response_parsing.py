"""TRL's parsers of replies, for each chat template: a check that the tool calls in a reply reach the tools."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows, ids_of
from rl_sentinel.adapters.trl.rendered_templates import MODULE, ORIGINAL, compile_templates, rendered
from rl_sentinel.adapters.trl.response_schema import Schema, read_reply
from rl_sentinel.adapters.trl.tiny_trainer import make_character_tokenizer
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

PATH = f"{MODULE}.parse_response"
ADDS = f"{MODULE}.add_response_schema"

#: The format that the installed transformers reads, and the one that TRL gave tokenizers until June 2026.
FORMAT, SCHEMA = "response_template", "response_schema"

#: Kind of argument -> its type in the tool's schema, and the argument for a token.
KINDS: Mapping[str, tuple[str, Callable[[int], object]]] = {
    "numbers": ("integer", int),
    "texts": ("string", "w{}".format),
    "texts of digits": ("string", str),
}

#: Parts of a message that may have the text: a template writes the text before a call as a thought.
TEXTS = ("content", "thinking", "reasoning_content")

_SAYS = (
    "grpo_trainer.py, _generate: parse_response gives the calls of a sampled reply, and _tool_call_loop passes their "
    "arguments to the tools"
)

_TEXTS = (
    "grpo_trainer.py, _generate: parse_response gives the message of a sampled reply, whose content reward functions "
    "read, and which the chat template renders again before the results of tools"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the parser with each known template; a fake of transformers reads schemas."""
    if not target.has(PATH) or target.fails(PATH) or not target.has(ADDS):
        return
    module = target.module(MODULE)
    source = inspect.getsource(target.find(ADDS))
    if FORMAT not in source and f".{SCHEMA} = " not in source:
        return
    known = sorted(n for n, value in vars(module).items() if n.endswith(ORIGINAL) and isinstance(value, str))
    names = [name.removesuffix(ORIGINAL) for name in known if name in source]
    if names:
        compile_templates(target, names, (ORIGINAL,))
        yield from bindable(target, *(_parsed(names, kind) for kind in KINDS))
        yield from bindable(target, *(_texts(names, calls=calls) for calls in (False, True)))


def parsed_calls(
    parse: Callable[..., dict[str, Any]],
    adds: Callable[[Any], Any],
    rows: list[dict[str, list[int]]],
    names: list[str],
    kind: str,
) -> dict[str, list[list[int]]]:
    """Parse the replies with each template.

    Returns, per template and row, the tokens that reach the tool, one per call; -1 where a call does not reach the
    tool, and for all calls if the parser returns more. All calls of a row are in one reply. If a template cannot write
    all calls of the reply, they count as parsed.
    """
    type_, argument = KINDS[kind]
    tools = [_tool(type_)]
    found: dict[str, list[list[int]]] = {}
    for name in names:
        tokenizer = _tokenizer(parse, adds, name)
        found[name] = []
        for row in rows:
            expected = [argument(token) for token in row["tokens"]]
            calls = _calls(parse, tokenizer, tools, expected)
            read = expected if calls is None else [*calls, *[None] * len(expected)]
            same = (type(one) is type(other) and one == other for one, other in zip(read, expected, strict=False))
            more = calls is not None and len(calls) > len(expected)
            kept = [own and not more for own in same]
            found[name].append([token if own else -1 for own, token in zip(kept, row["tokens"], strict=True)])
    return found


def parsed_texts(
    parse: Callable[..., dict[str, Any]],
    adds: Callable[[Any], Any],
    rows: list[dict[str, list[int]]],
    names: list[str],
    *,
    calls: bool,
) -> dict[str, list[list[int]]]:
    """Parse replies with a text, and with ``calls`` also with a call after it, with each template.

    Returns, per template and row, the tokens of the text, or -1 where the parser returns another text. A text that the
    template does not write unchanged counts as parsed, and so does one that the parser reads as a thought.
    """
    tools = [_tool("string")]
    found: dict[str, list[list[int]]] = {}
    for name in names:
        tokenizer = _tokenizer(parse, adds, name)
        found[name] = []
        for row in rows:
            text = " ".join(map("w{}".format, row["tokens"]))
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if calls:
                message["tool_calls"] = [_call("w0")]
            reply = _reply(parse, tokenizer, tools, message)
            kept = reply is None or text not in reply[0] or text in [reply[1].get(part) for part in TEXTS]
            found[name].append([token if kept else -1 for token in row["tokens"]])
    return found


def _tokenizer(parse: Callable[..., Any], adds: Callable[[Any], Any], name: str) -> Any:  # noqa: ANN401 - of transformers
    """A tokenizer with a template and the parser of its replies."""
    tokenizer = make_character_tokenizer()
    tokenizer.chat_template = parse.__globals__[name + ORIGINAL]
    adds(tokenizer)
    if (schema_of_reply := getattr(tokenizer, SCHEMA, None)) is not None:
        tokenizer.parse_response = partial(_read_ids, tokenizer, schema_of_reply)
    return tokenizer


def _tool(type_: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"place": {"type": type_, "description": "a place"}}}
    return {"type": "function", "function": {"name": "look", "description": "a look", "parameters": schema}}


def _call(place: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "look", "arguments": {"place": place}}}


def _read_ids(tokenizer: Any, schema: Schema, ids: list[int] | str, **_options: object) -> Any:  # noqa: ANN401 - of transformers
    """Read a reply, given as token ids or as text."""
    return read_reply(ids if isinstance(ids, str) else tokenizer.decode(ids), schema)


def _calls(
    parse: Callable[..., dict[str, Any]],
    tokenizer: Any,  # noqa: ANN401 - of transformers
    tools: list[dict[str, Any]],
    expected: list[object],
) -> list[object] | None:
    """The arguments of the calls that are parsed from a reply; None if the template does not write all of them."""
    talk = {"role": "assistant", "content": "", "tool_calls": [_call(one) for one in expected]}
    found = _reply(parse, tokenizer, tools, talk)
    if found is None or found[0].count("place") != len(expected):
        return None
    return [_argument(call) for call in found[1].get("tool_calls") or []]


def _reply(
    parse: Callable[..., dict[str, Any]],
    tokenizer: Any,  # noqa: ANN401 - of transformers
    tools: list[dict[str, Any]],
    message: dict[str, Any],
) -> tuple[str, dict[str, Any]] | None:
    """The text of a reply with this message, and its parsed form; None if the template does not write it."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": "a question"}]
    whole = rendered(tokenizer.chat_template, [*asked, message], tools=tools)
    before = rendered(tokenizer.chat_template, asked, tools=tools, add_generation_prompt=True)
    if whole is None or before is None or not whole.startswith(before):
        return None
    reply = whole[len(before) :].rstrip()
    options = {"prefix": ids_of(tokenizer, before), "tools": tools}
    takes = inspect.signature(parse).parameters
    return reply, parse(tokenizer, ids_of(tokenizer, reply), **{n: v for n, v in options.items() if n in takes})


def _argument(call: dict[str, Any]) -> object:
    """The argument of a call; the call may contain its arguments as JSON text."""
    arguments = call["function"]["arguments"]
    return dict(json.loads(arguments) if isinstance(arguments, str) else arguments).get("place")


def _parsed(names: list[str], kind: str) -> Boundary:
    result = Use("parsed")
    return one_call(
        path=PATH,
        stage="batch",
        call=parsed_calls,
        name="parsed",
        arguments={
            **functions(parse=PATH, adds=ADDS),
            "rows": EachRow(Table({"tokens": RowTokens("token", "int")})),
            "names": Constant(names),
            "kind": Knob("arguments"),
        },
        remembered=True,
        produced_by={"rows": _SAYS},
        outputs={f"token of {n}": Output("B T", "", "token", at=result[n], form=Ragged()) for n in names},
        settings={f"arguments that are {kind}": {"arguments": kind}},
        claims=claims(_SAYS, conserves=True),
        reach="tools",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def _texts(names: list[str], *, calls: bool) -> Boundary:
    made, kind = _parsed(names, "texts"), "texts before calls" if calls else "texts"
    (step,) = made.steps
    arguments = {n: codec for n, codec in step.arguments.items() if n != "kind"} | {"calls": Knob("calls")}
    return replace(
        made,
        steps=(replace(step, call=parsed_texts, arguments=arguments),),
        settings={f"replies with {kind}": {"calls": calls}},
        claims=claims(_TEXTS, conserves=True),
    )
