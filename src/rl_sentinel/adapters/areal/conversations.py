"""AReaL's multi-turn conversations: the prompt of each turn, and the training row of the last turn."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from inspect import getsource, signature
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import last_token_trains, no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowSequence
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

PROMPT = "areal.experimental.openai.client.concat_prompt_token_ids_with_parent"
INTERACTION = "areal.experimental.openai.types.InteractionWithTokenLogpReward"
TEMPLATE = "areal.experimental.openai.client.apply_chat_template"
#: The class of a turn in September and October 2025, the first releases whose turns have a parent.
FIRST = "areal.experimental.openai.types.CompletionWithTokenLogpReward"
RESPONSE = "areal.api.io_struct.ModelResponse"

#: Setting -> how every turn except the last one ends.
FAMILIES: Mapping[str, Settings] = {
    "end of sequence": {"end": "eos"},
    "padding token": {"end": "pad"},
    "cut off": {"end": "length"},
}

#: The method that finds the parents of turns by their tokens, in revisions of November and December 2025. A turn whose
#: prompt has another stop token than its parent then has no parent, and two rows are trained.
BY_TOKENS = "areal.experimental.openai.cache.InteractionCache._build_parent_child_relationships"

#: Setting -> the same, where the prompt ends with a call of a tool.
CALLS: Mapping[str, Settings] = {"a call of a tool": {"end": "eos"}}

#: Token ids: the two special tokens, a quotation mark, and the first of the other tokens.
_EOS, _PAD, _QUOTE, _FIRST = 1, 2, 3, 10

#: How a turn ends -> the sampled stop token.
_STOP: Mapping[str, int] = {"eos": _EOS, "pad": _PAD}

_DOCS = (
    "openai/client.py, concat_prompt_token_ids_with_parent: the prompt of a turn is the tokens of the turns before it "
    "and the new messages; openai/types.py, to_tensor_dict: each token with its log-prob, mask and version"
)
_PRODUCER = (
    "openai/client.py, create (chat_template_type='concat'): remaining messages of the interaction and its parent; the "
    "response of the engine has the sampled tokens with their stop token, EOS or PAD (stop_token_ids); "
    "openai/cache.py: parents by their messages"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the row of a conversation, for each kind of turn end and with a tool call in the prompt."""
    kind = next((path for path in (INTERACTION, FIRST) if target.has(f"{path}.to_tensor_dict")), "")
    if kind and not target.fails(kind) and "parent" in {field.name for field in fields(target.find(kind))}:
        found = {name: how for name, how in FAMILIES.items() if how["end"] != "pad" or not target.has(BY_TOKENS)}
        yield from bindable(target, _conversation(target, kind, found))
        if target.has(PROMPT) and "apply_chat_template" in getsource(target.find(PROMPT)):
            yield from bindable(target, _conversation(target, kind, CALLS, calls=True))


def build_rows(  # noqa: PLR0913 - code of the target, and the arguments of the boundary
    prompt: Callable[..., list[int]] | None,
    interaction: Any,  # noqa: ANN401 - the target's class
    response: Callable[..., Any],
    rows: list[dict[str, Any]],
    end: str,
    calls: bool,  # noqa: FBT001 - an argument of the boundary
) -> dict[str, list[Tensor]]:
    """Build the training rows of conversations: tokens, masks, log-probs and versions of their responses.

    With ``calls``, the last token of each prompt is the argument of a tool call by the assistant. A token is -1 where
    it or the stop token beside it differs from the sampled token. An untrained token keeps the log-prob and the version
    of the batch.
    """
    columns: dict[str, list[Tensor]] = {"tokens": [], "masks": [], "logprobs": [], "versions": []}
    for row in rows:
        size, start = len(row["mask"]), len(row["tokens"]) - len(row["mask"])
        begin = _history([_FIRST + int(token) for token in row["tokens"][:start]], calls=calls)
        turns = _turns_of(row, end)
        whole = _row(prompt, interaction, response, row, turns, begin)
        data = {name: value[0].tolist() for name, value in whole.items()}
        first = start + int(calls)  # the template ends the call
        same, masks = [True] * size, [True] * size
        logprobs, versions = list(row["logprobs"]), list(row["versions"])
        for at, (token, place, is_sampled) in enumerate((t for turn in turns for t in turn.tokens), first):
            same[place] &= at < len(data["input_ids"]) and data["input_ids"][at] == token
            trained = at < len(data["loss_mask"]) and bool(data["loss_mask"][at])
            masks[place] &= trained == is_sampled
            if is_sampled and trained:
                logprobs[place], versions[place] = data["logprobs"][at], data["versions"][at]
        tokens = row["tokens"][start:]
        columns["tokens"].append(torch.tensor([token if ok else -1 for token, ok in zip(tokens, same, strict=True)]))
        columns["masks"].append(torch.tensor([bool(m) == ok for m, ok in zip(row["mask"], masks, strict=True)]))
        columns["logprobs"].append(torch.tensor(logprobs))
        columns["versions"].append(torch.tensor(versions))
    return columns


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn of a response; ``stop`` is the finish reason of a sampled turn.

    ``tokens`` has the id of each token, its position in the response (for an added stop token, that of the neighboring
    token), and whether it is sampled.
    """

    is_sampled: bool
    stop: str
    tokens: list[tuple[int, int, bool]]


def _turns_of(row: dict[str, Any], end: str) -> list[_Turn]:
    """The turns of a response, with a stop token after each model turn except the last.

    A sampled stop token is the last token of its turn; a stop token from the template begins the next turn.
    """
    start = len(row["tokens"]) - len(row["mask"])
    runs = [(bool(m), list(places)) for m, places in groupby(range(len(row["mask"])), row["mask"].__getitem__)]
    turns: list[_Turn] = []
    for n, (is_sampled, places) in enumerate(runs):
        tokens = [(_FIRST + int(row["tokens"][start + place]), place, is_sampled) for place in places]
        last = n == len(runs) - 1
        if is_sampled and not last and end in _STOP:
            tokens.append((_STOP[end], places[-1], True))
        if not is_sampled and n and end not in _STOP:
            tokens.insert(0, (_EOS, places[0], False))
        turns.append(_Turn(is_sampled, "stop" if last or end in _STOP else "length", tokens))
    return turns


def _prompt_of(
    prompt: Callable[..., list[int]] | None,
    child: Any,  # noqa: ANN401 - of the target's class
    parent: Any,  # noqa: ANN401 - of the target's class
    tokenizer: SimpleNamespace,
) -> list[int]:
    """The prompt of a turn; until December 2025, the text of all messages is tokenized again."""
    if prompt is None:
        return _apply_template(child.messages)
    delimiters = {name: "" for name in ("start", "end") if name in signature(prompt).parameters}
    return prompt(child.remaining_messages, parent, tokenizer, **delimiters)


def _encode(text: str) -> list[int]:
    """The tokens of a text: the numbers in it."""
    return [int(number) for number in re.findall(r"\d+", text)]


def _row(  # noqa: PLR0913 - code of the target, and a conversation
    prompt: Callable[..., list[int]] | None,
    interaction: Any,  # noqa: ANN401 - the target's class
    response: Callable[..., Any],
    row: dict[str, Any],
    turns: list[_Turn],
    begin: list[dict[str, Any]],
) -> dict[str, Tensor]:
    """The training row of the last turn of a conversation that begins with the messages ``begin``."""
    tokenizer = SimpleNamespace(
        eos_token_id=_EOS, pad_token_id=_PAD, apply_chat_template=_apply_template, encode=_encode
    )
    # Earlier classes have no default for the reply.
    names = {field.name for field in fields(interaction)}
    reply = "model_response" if "model_response" in names else "response"
    empty = {name: None for name in (reply, "completion") if name in names}
    messages = begin
    parent: Any = None
    for turn in turns:
        ids = [token for token, _, _ in turn.tokens]
        content = [token for token in ids if token >= _FIRST]
        if not turn.is_sampled:
            messages = [*messages, _message("user", content)]
            continue
        child = interaction(**empty, messages=messages, parent=parent, chat_template_type="concat")
        replacement = response(
            input_tokens=_prompt_of(prompt, child, parent, tokenizer),
            output_tokens=ids,
            output_logprobs=[row["logprobs"][place] for _, place, _ in turn.tokens],
            output_versions=[row["versions"][place] for _, place, _ in turn.tokens],
            stop_reason=turn.stop,
            tokenizer=tokenizer,
        )
        setattr(child, reply, replacement)
        said = [_message("assistant", content)]
        if "output_message_list" in names:
            child.output_message_list = said
        messages = [*messages, *said]
        parent = child
    data: dict[str, Tensor] = parent.to_tensor_dict()
    return {name: data[name] for name in ("input_ids", "loss_mask", "logprobs", "versions")}


def _message(role: str, content: list[int]) -> dict[str, Any]:
    return {"role": role, "content": content}


def _apply_template(messages: list[dict[str, Any]], **_options: object) -> list[int]:
    """A chat template that ends only the assistant's messages with EOS, and renders the arguments of calls as JSON."""
    end = {"assistant": [_EOS], "user": []}
    return [token for message in messages for token in [*_rendered(message), *end[message["role"]]]]


def _history(prompt: list[int], *, calls: bool) -> list[dict[str, Any]]:
    """The messages of a prompt; with ``calls`` the last token is in the arguments of a call, a JSON text."""
    if not calls:
        return [_message("user", prompt)]
    function = {"name": "look_up", "arguments": json.dumps({"place": prompt[-1]})}
    call = {"id": "call", "type": "function", "function": function}
    return [_message("user", prompt[:-1]), {**_message("assistant", []), "tool_calls": [call]}]


def _rendered(message: dict[str, Any]) -> list[int]:
    """The tokens of a message: its content and the numbers in its tool calls; marks surround calls given as text."""
    tokens = list(message["content"])
    for call in message.get("tool_calls", []):
        arguments = call["function"]["arguments"]
        marks = [_QUOTE] if isinstance(arguments, str) else []
        tokens += [*marks, *_encode(json.dumps(arguments)), *marks]
    return tokens


def apply_template(_tokenizer: object, messages: list[dict[str, Any]], **_options: object) -> list[int]:
    """A fake of AReaL's helper, which would read the version of transformers."""
    return _apply_template(messages)


def _conversation(target: Target, kind: str, settings: Mapping[str, Settings], *, calls: bool = False) -> Boundary:
    continues = target.has(PROMPT)
    row = Table({"tokens": RowSequence("token", "int"), **row_fields("mask", "logprobs", "versions")})
    return one_call(
        path=PROMPT if calls else " -> ".join([*([PROMPT] if continues else []), f"{kind}.to_tensor_dict"]),
        stage="batch",
        call=build_rows,
        name="built",
        arguments={
            "prompt": Constant(Function(PROMPT) if continues else None),
            **functions(interaction=kind, response=RESPONSE),
            "rows": EachRow(row),
            "end": Knob("end"),
            "calls": Constant(calls),
        },
        produced_by={"rows": f"{_PRODUCER}; arguments of a tool call are a JSON text, as in OpenAI's API"},
        fakes={TEMPLATE: apply_template} if target.has(TEMPLATE) else {},
        outputs=row_outputs(Use("built"), "rollout_logprob", "token", "mask", "version"),
        settings=settings,
        claims=claims(_DOCS, conserves=True),
        reach="chat_template_type='concat' of the proxy for agents" + (", messages with tool_calls" if calls else ""),
        requires=(no_empty_response, last_token_trains, has_prompt),
    )


def has_prompt(inputs: Inputs) -> str:
    """The reason to skip a batch where a conversation has no prompt; empty otherwise."""
    return "a conversation has no prompt" if bool((inputs.batch.prompt_length < 1).any()) else ""
