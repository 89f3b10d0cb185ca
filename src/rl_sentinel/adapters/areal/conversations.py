"""AReaL's conversations: the prompt of each turn is made of the turns before it, and the last turn becomes a row."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Cast, Ragged
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowSequence, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

PROMPT = "areal.experimental.openai.client.concat_prompt_token_ids_with_parent"
INTERACTION = "areal.experimental.openai.types.InteractionWithTokenLogpReward"
TEMPLATE = "areal.experimental.openai.client.apply_chat_template"
ROW = f"{INTERACTION}.to_tensor_dict"
RESPONSE = "areal.api.io_struct.ModelResponse"

#: Name -> its settings: how every turn but the last one ends.
FAMILIES: Mapping[str, Settings] = {
    "end of sequence": {"end": "eos"},
    "padding token": {"end": "pad"},
    "cut off": {"end": "length"},
}

#: Ids of the tokenizer: the two special tokens, and the first of all others.
_EOS, _PAD, _FIRST = 1, 2, 10

#: How a turn ends -> the stop token that was sampled.
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
    """The row of a conversation, by the end of its turns."""
    if target.has(PROMPT) and target.has(ROW):
        yield from bindable(target, _conversation(target))


def conversations(
    prompt: Callable[..., list[int]],
    interaction: Callable[..., Any],
    response: Callable[..., Any],
    rows: list[dict[str, Any]],
    end: str,
) -> dict[str, list[Tensor]]:
    """The rows of conversations: tokens, masks, log-probs and versions of their responses.

    A token is -1 where it, or the stop token after it, is not the sampled one. An untrained token has no log-prob and
    no version of its own.
    """
    made: dict[str, list[Tensor]] = {"tokens": [], "masks": [], "logprobs": [], "versions": []}
    for row in rows:
        size, start = len(row["mask"]), len(row["tokens"]) - len(row["mask"])
        turns = _turns_of(row, end)
        data = {name: value[0].tolist() for name, value in _row(prompt, interaction, response, row, turns).items()}
        same, masks = [True] * size, [True] * size
        logprobs, versions = list(row["logprobs"]), list(row["versions"])
        for at, (wanted, place, own) in enumerate((t for turn in turns for t in turn.tokens), start):
            same[place] &= at < len(data["input_ids"]) and data["input_ids"][at] == wanted
            trained = at < len(data["loss_mask"]) and bool(data["loss_mask"][at])
            masks[place] &= trained == own
            if own and trained:
                logprobs[place], versions[place] = data["logprobs"][at], data["versions"][at]
        tokens = row["tokens"][start:]
        made["tokens"].append(torch.tensor([own if ok else -1 for own, ok in zip(tokens, same, strict=True)]))
        asked = [bool(one) for one in row["mask"]]
        made["masks"].append(torch.tensor([one == ok for one, ok in zip(asked, masks, strict=True)]))
        made["logprobs"].append(torch.tensor(logprobs))
        made["versions"].append(torch.tensor(versions))
    return made


@dataclass(frozen=True, slots=True)
class _Turn:
    """Tokens of one side: the id of each, its position in the response, and whether the model sampled it."""

    own: bool
    stop: str
    tokens: list[tuple[int, int, bool]]


def _turns_of(row: dict[str, Any], end: str) -> list[_Turn]:
    """The turns of a response; all but the last one of the model have a stop token, or are closed by the template."""
    start = len(row["tokens"]) - len(row["mask"])
    stretches = [(bool(own), list(places)) for own, places in groupby(range(len(row["mask"])), row["mask"].__getitem__)]
    turns: list[_Turn] = []
    for n, (own, places) in enumerate(stretches):
        tokens = [(_FIRST + int(row["tokens"][start + place]), place, own) for place in places]
        last = n == len(stretches) - 1
        if own and not last and end in _STOP:
            tokens.append((_STOP[end], places[-1], True))
        if not own and n and end not in _STOP:
            tokens.insert(0, (_EOS, places[0], False))
        turns.append(_Turn(own, "stop" if last or end in _STOP else "length", tokens))
    return turns


def _row(
    prompt: Callable[..., list[int]],
    interaction: Callable[..., Any],
    response: Callable[..., Any],
    row: dict[str, Any],
    turns: list[_Turn],
) -> dict[str, Tensor]:
    """The training row of the last turn of one conversation."""
    tokenizer = SimpleNamespace(eos_token_id=_EOS, pad_token_id=_PAD, apply_chat_template=_templated)
    before = len(row["tokens"]) - len(row["mask"])
    messages = [_message("user", [_FIRST + int(one) for one in row["tokens"][:before]])]
    parent: Any = None
    for turn in turns:
        ids = [one for one, _, _ in turn.tokens]
        said = [one for one in ids if one >= _FIRST]
        if not turn.own:
            messages = [*messages, _message("user", said)]
            continue
        made = interaction(messages=messages, parent=parent, chat_template_type="concat")
        made.model_response = response(
            input_tokens=prompt(made.remaining_messages, parent, tokenizer),
            output_tokens=ids,
            output_logprobs=[row["logprobs"][place] for _, place, _ in turn.tokens],
            output_versions=[row["versions"][place] for _, place, _ in turn.tokens],
            stop_reason=turn.stop,
            tokenizer=tokenizer,
        )
        made.output_message_list = [_message("assistant", said)]
        messages = [*messages, *made.output_message_list]
        parent = made
    data: dict[str, Tensor] = parent.to_tensor_dict()
    return {name: data[name] for name in ("input_ids", "loss_mask", "logprobs", "versions")}


def _message(role: str, content: list[int]) -> dict[str, Any]:
    return {"role": role, "content": content}


def _templated(messages: list[dict[str, Any]], **_options: object) -> list[int]:
    """A chat template that closes the turns of the assistant alone."""
    closed = {"assistant": [_EOS], "user": []}
    return [one for message in messages for one in [*message["content"], *closed[message["role"]]]]


def templated(_tokenizer: object, messages: list[dict[str, Any]], **_options: object) -> list[int]:
    """What AReaL's helper answers, which asks for the release of transformers besides."""
    return _templated(messages)


def _conversation(target: Target) -> Boundary:
    row = Table(
        {
            "tokens": RowSequence("token", "int"),
            "mask": RowTokens("mask", "int"),
            "logprobs": RowTokens("rollout_logprob"),
            "versions": RowTokens("version", "int"),
        }
    )
    step = Step(
        call=conversations,
        name="made",
        arguments={
            "prompt": Constant(Function(PROMPT)),
            "interaction": Constant(Function(INTERACTION)),
            "response": Constant(Function(RESPONSE)),
            "rows": EachRow(row),
            "end": Knob("end"),
        },
        produced_by={"rows": _PRODUCER},
        doubles={TEMPLATE: templated} if target.has(TEMPLATE) else {},
    )
    made, form = Use("made"), Ragged()
    return Boundary(
        path=f"{PROMPT} -> {ROW}",
        stage="batch",
        steps=(step,),
        outputs={
            "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=made["logprobs"], form=form),
            "token": Output("B T", "", "token", at=made["tokens"], form=form),
            "mask": Output("B T", "", "mask", at=made["masks"], form=Cast(form, torch.bool)),
            "version": Output("B T", "updates", "version", at=made["versions"], form=form),
        },
        settings=FAMILIES,
        claims=claims(_DOCS, conserves=True),
        reach="chat_template_type='concat' of the proxy for agents",
        requires=(no_empty_response, _ends_with_the_model),
    )


def _ends_with_the_model(inputs: Inputs) -> str:
    """A conversation has a prompt, and ends with tokens of the model."""
    batch = inputs.batch
    last = batch.mask.gather(1, (batch.length - 1).clamp(min=0).unsqueeze(1))
    if not bool(last.all()):
        return "a conversation does not end with tokens of the model"
    return "a conversation has no prompt" if bool((batch.prompt_length < 1).any()) else ""
