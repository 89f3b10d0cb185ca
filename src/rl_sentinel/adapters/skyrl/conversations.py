"""SkyRL's tokenization of conversations: token ids and loss mask, compared with the chat template."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.chat_template import REPLY, ChatTokenizer
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.conversations import conversation, difference_outputs, differences
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use

REPLIES = "skyrl.train.generators.utils.get_response_ids_and_loss_mask_from_messages"
SFT = "skyrl.train.sft_trainer._tokenize_chat_all_assistants"

#: Setting -> the system message that the template adds to a conversation without one.
ADDED = {"default": {"added": ""}, "template with a system message": {"added": "You are a helpful assistant."}}

_TURNS = (
    "skyrl/train/generators/skyrl_gym_generator.py, agent_loop: the chat history after the prompt; environments reply "
    "with user messages"
)
_DATA = "skyrl/train/sft_trainer.py, tokenize_chat_example: messages of a data set, including tool results"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the two functions that tokenize messages: of a rollout, and of a supervised data set."""
    if target.has(REPLIES):
        yield from bindable(
            target, _boundary(REPLIES, rollout_differences, _TURNS, "generator.use_conversation_multi_turn")
        )
    if target.has(SFT) and not target.fails(SFT):
        yield from bindable(target, _boundary(SFT, dataset_differences, _DATA, "train_on_what=all_assistant_messages"))


def rollout_differences(encode: Callable[..., Any], added: str, masks: list[list[int]]) -> dict[str, list[float]]:
    """Per row, count the differences of SkyRL's tokenization of the messages after the prompt.

    ``tokens`` counts the token ids that differ from the chat template, ``masks`` the mask values that do not mark
    exactly the replies.
    """
    tokenizer = ChatTokenizer(added)
    counts = []
    for row in masks:
        messages = conversation(row, "user")
        prompt = tokenizer.apply_chat_template(messages[:1])
        tokens, trained, *_ = encode(messages[1:], tokenizer)
        mask = [*[0] * len(prompt), *trained]
        counts.append(differences(tokenizer, messages, [*prompt, *tokens], mask, after_end=_after_end(encode)))
    return {"tokens": [tokens for tokens, _ in counts], "masks": [wrong for _, wrong in counts]}


def _after_end(encode: Callable[..., Any]) -> bool | None:
    """False if the function's source rules out training after the end of a reply, None if it is unclear."""
    return False if "after the EOS" in inspect.getsource(encode) else None


def dataset_differences(encode: Callable[..., Any], added: str, masks: list[list[int]]) -> dict[str, list[float]]:
    """Count the ``tokens`` and values of ``masks`` where SkyRL's conversations of a data set differ from the template.

    Both are 0 for a conversation without a reply.
    """
    tokenizer = ChatTokenizer(added)
    counts = []
    for mask in masks:
        messages = conversation(mask)
        if all(message["role"] != REPLY for message in messages):
            counts.append((0.0, 0.0))
            continue
        example = encode(messages, tokenizer)
        before = [0] * (len(example["input_ids"]) - example["num_actions"])
        counts.append(differences(tokenizer, messages, example["input_ids"], [*before, *example["loss_mask"]]))
    return {"tokens": [tokens for tokens, _ in counts], "masks": [wrong for _, wrong in counts]}


def _boundary(path: str, run: Callable[..., Any], produced_by: str, reach: str) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=run,
        name="differ",
        arguments={
            "encode": Constant(Function(path)),
            "added": Knob("added"),
            "masks": EachRow(RowTokens("mask", "int")),
        },
        produced_by={"masks": produced_by},
        reads=frozenset({"mask", "length"}),
        outputs=difference_outputs(Use("differ")),
        settings=ADDED,
        reach=reach,
        requires=(no_empty_response,),
    )
