"""verl's requests of SGLang's rollout over several turns: tokens, masks and positions against the chat template."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.chat_template import END, ChatTokenizer, Message
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.conversations import difference_outputs, differences
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_script import differing, ending_with_reply, turns_of
from rl_sentinel.adapters.verl.conversations import a_few_turns
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

REQUEST = "verl.workers.rollout.schemas.AsyncRolloutRequest"
PATH = f"{REQUEST}.finalize"
RESPONSE = "verl.tools.schemas.ToolResponse"

#: Fields that the rollout leaves empty: a list, or None in releases with tensors.
_EMPTY = (
    *("response_ids", "response_attention_mask", "response_position_ids", "response_loss_mask"),
    *("input_ids", "attention_mask", "position_ids", "loss_mask"),
    *("prompt_ids", "prompt_attention_mask", "prompt_position_ids", "prompt_loss_mask"),
)

#: More tokens than any conversation of a case has.
_ROOM = 10_000

_DOCS = claims(
    "rollout.yaml, tokenization_sanity_check_mode: the tokens must match those of the whole conversation; schemas.py, "
    "add_assistant_message and add_tool_response_messages: loss_mask is 1 for replies and 0 for results of tools"
)
_PRODUCED = (
    "sglang_rollout.py, _async_rollout_a_request: the generation prompt, a reply and results of tools in turn, then "
    "finalize; a reply without a tool call comes with its token ids, in releases that take them"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of a request, in releases whose rollout fills it by the chat template."""
    folder = target.root / "verl" / "workers" / "rollout"
    rollouts = [file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*sglang*.py"))]
    used = any("AsyncRolloutRequest(" in text for text in rollouts)
    if used and target.has(f"{REQUEST}.get_generation_prompt_ids") and not target.fails(REQUEST):
        yield from try_bind(target, PATH, "batch", lambda: [_requests(target)])


class RequestTokenizer(ChatTokenizer):
    """A tokenizer whose template takes the target's message objects, and which also takes a list of one text."""

    def __call__(self, text: Any, **options: object) -> Any:  # noqa: ANN401 - a text, or a list of one
        """The tokens of a text, as a tensor of one row on request."""
        ids = super().__call__(text if isinstance(text, str) else text[0])["input_ids"]
        if not options.get("return_tensors"):
            return {"input_ids": ids}
        row = torch.tensor([ids])
        return {"input_ids": row, "attention_mask": torch.ones_like(row)}

    def apply_chat_template(self, messages: Sequence[Any], **options: Any) -> Any:  # noqa: ANN401 - a text, or tokens
        """The conversation as a text, or as token ids."""
        known = [one if isinstance(one, dict) else one.model_dump() for one in messages]
        return super().apply_chat_template(known, **options)


class NoProcessor:
    """A fake of the class of processors of models with vision; no object has this class."""


def request_differences(
    kind: Any,  # noqa: ANN401 - a class of the target
    response: Callable[..., Any] | None,
    masks: list[list[int]],
) -> dict[str, list[float]]:
    """Count, per conversation, the tokens and positions that differ from the whole conversation, and wrong masks."""
    counts = []
    names = dict.fromkeys(("PreTrainedTokenizer", "PreTrainedTokenizerFast"), RequestTokenizer)
    with replaced_globals(kind.finalize.__globals__, **names, ProcessorMixin=NoProcessor):
        for mask in masks:
            messages, tokenizer = ending_with_reply(mask), RequestTokenizer("be brief")
            request = _played(kind, response, messages, tokenizer)
            ids, trained, places = (
                torch.as_tensor(column).flatten().tolist()
                for column in (request.input_ids, request.loss_mask, request.position_ids)
            )
            whole = tokenizer.apply_chat_template(messages)
            kept = slice(len(whole) - 1) if len(ids) == len(whole) - 1 else slice(None)  # without the last newline
            found = differences(tokenizer, messages, ids, trained, kept)
            counts.append((*found, differing(places, range(len(ids)))))
    return {name: [one[n] for one in counts] for n, name in enumerate(("tokens", "masks", "positions"))}


def _played(
    kind: Any,  # noqa: ANN401 - a class of the target
    response: Callable[..., Any] | None,
    messages: list[Message],
    tokenizer: RequestTokenizer,
) -> Any:  # noqa: ANN401 - an object of the target
    """A finished request with the replies and tool results of a conversation."""
    tensors = _has_tensors(kind)
    request = kind(
        request_id="request",
        state="pending",
        messages=messages[:1],
        tool_schemas=[],
        reward_scores={},
        max_prompt_len=_ROOM,
        max_response_len=_ROOM,
        max_model_len=_ROOM,
        use_inference_chat_template=False,
        tokenization_sanity_check_mode="strict",
        enable_tokenization_sanity_check=False,
        **dict.fromkeys(("processing_class", "tokenizer"), tokenizer),
        **{name: None if tensors else [] for name in _EMPTY},
        generation_prompt_ids=None if tensors else [],
        base_conv_wo_gen_prompt_end_pos=0,
        base_conv_with_gen_prompt_end_pos=0,
    )
    for reply, results in turns_of(messages):
        request.get_generation_prompt_ids(tokenizer)
        sampled = tokenizer(reply + END, return_tensors="pt")["input_ids"]
        takes_ids = "content_ids" in inspect.signature(kind.add_assistant_message).parameters and not results
        request.add_assistant_message(tokenizer, content=reply, **({"content_ids": sampled} if takes_ids else {}))
        if results:
            contents = results if response is None else [response(text=text) for text in results]
            request.add_tool_response_messages(tokenizer, contents)
    request.finalize(tokenizer, {})
    return request


def _has_tensors(kind: Any) -> bool:  # noqa: ANN401 - a class of the target
    """Whether the fields of the request are tensors; lists of numbers in earlier releases."""
    return "Tensor" in str(kind.model_fields["input_ids"].annotation)


def _requests(target: Target) -> Boundary:
    takes_objects = RESPONSE.rpartition(".")[2] in vars(target.module(REQUEST.rpartition(".")[0]))
    positions = Output("B", "tokens", "positions_off_order", at=Use("differ")["positions"], form=PerRow("list"))
    return one_call(
        path=PATH,
        stage="batch",
        call=request_differences,
        name="differ",
        arguments={
            "kind": Constant(Function(REQUEST)),
            "response": Constant(Function(RESPONSE) if takes_objects else None),
            "masks": EachRow(RowTokens("mask", "int")),
        },
        remembered=True,
        produced_by={"masks": _PRODUCED},
        reads=frozenset({"mask", "length"}),
        outputs=difference_outputs(Use("differ")) | {"number of wrong positions": positions},
        settings={"tools": {}},
        claims=_DOCS,
        reach="rollout.name=sglang, rollout.multi_turn.enable=True",
        requires=(no_empty_response,),
        domain=a_few_turns,
    )
