"""SkyRL's conversations: tokens and loss mask of replies, compared with the chat template."""

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
from rl_sentinel.core.boundary import Boundary, Step, Unbound
from rl_sentinel.core.call import Function, Use

REPLIES = "skyrl.train.generators.utils.get_response_ids_and_loss_mask_from_messages"
SFT = "skyrl.train.sft_trainer._tokenize_chat_all_assistants"

#: What the template adds where a conversation has no system message, by setting.
ADDED = {"default": {"added": ""}, "template with a system message": {"added": "You are a helpful assistant."}}

_TURNS = (
    "skyrl/train/generators/skyrl_gym_generator.py, agent_loop: the chat history after the prompt; environments answer "
    "with messages of the user"
)
_DATA = "skyrl/train/sft_trainer.py, tokenize_chat_example: messages of a data set, results of tools among them"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The replies of a rollout that is tokenized again, and of a data set."""
    if target.has(REPLIES):
        yield from bindable(target, _boundary(REPLIES, of_rollouts, _TURNS, "generator.use_conversation_multi_turn"))
    if target.has(SFT) and not target.fails(SFT):
        yield from bindable(target, _boundary(SFT, of_data, _DATA, "train_on_what=all_assistant_messages"))


def of_rollouts(encode: Callable[..., Any], added: str, masks: list[list[int]]) -> dict[str, list[float]]:
    """How the replies after a prompt differ from the template of the conversation."""
    tokenizer = ChatTokenizer(added)
    counts = []
    for mask in masks:
        messages = conversation(mask, "user")
        prompt = tokenizer.apply_chat_template(messages[:1])
        tokens, trained, *_ = encode(messages[1:], tokenizer)
        counts.append(differences(tokenizer, messages, [*prompt, *tokens], [*[0] * len(prompt), *trained]))
    return {"tokens": [tokens for tokens, _ in counts], "masks": [wrong for _, wrong in counts]}


def of_data(encode: Callable[..., Any], added: str, masks: list[list[int]]) -> dict[str, list[float]]:
    """How a conversation of a data set differs from its template; one without a reply is left out."""
    tokenizer = ChatTokenizer(added)
    counts = []
    for mask in masks:
        messages = conversation(mask)
        if all(message["role"] != REPLY for message in messages):
            counts.append((0.0, 0.0))
            continue
        made = encode(messages, tokenizer)
        before = [0] * (len(made["input_ids"]) - made["num_actions"])
        counts.append(differences(tokenizer, messages, made["input_ids"], [*before, *made["loss_mask"]]))
    return {"tokens": [tokens for tokens, _ in counts], "masks": [wrong for _, wrong in counts]}


def _boundary(path: str, run: Callable[..., Any], produced_by: str, reach: str) -> Boundary:
    step = Step(
        call=run,
        name="differ",
        arguments={
            "encode": Constant(Function(path)),
            "added": Knob("added"),
            "masks": EachRow(RowTokens("mask", "int")),
        },
        produced_by={"masks": produced_by},
    )
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        reads=frozenset({"mask", "length"}),
        outputs=difference_outputs(Use("differ")),
        settings=ADDED,
        reach=reach,
        requires=(no_empty_response,),
    )
