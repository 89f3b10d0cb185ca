"""TRL's chat templates for training: a check that they render replies and tool calls like the original templates."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rendered_templates import (
    MODULE,
    ORIGINAL,
    PATH,
    SPECIAL,
    TRAINING,
    compile_templates,
    rendered,
)
from rl_sentinel.adapters.trl.templates import reply
from rl_sentinel.adapters.trl.tiny_trainer import make_tokenizer
from rl_sentinel.adapters.trl.token_differences import ROWS, count_differences
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

_SAYS = (
    "trl/chat_templates/README.md: training variants keep the format of the model, and are patched to mark replies, to "
    "keep thoughts, and to keep earlier messages unchanged when a message follows"
)

#: Setting -> the last message of the conversation, for a text.
MESSAGES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "a reply": lambda text: {"role": "assistant", "content": text},
    "a call of a tool": lambda text: _call({"place": text}),
    "a call of a tool, arguments as text": lambda text: _call(json.dumps({"place": text})),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training variants, in releases that also contain the original templates."""
    if not target.has(PATH) or target.fails(PATH):
        return
    module = vars(target.module(MODULE))
    names = [name.removesuffix(TRAINING) for name in module if name.endswith(TRAINING) and "get_" not in name]
    paired = sorted(name for name in names if name + ORIGINAL in module)
    if paired:
        compile_templates(target, paired, (ORIGINAL, TRAINING))
        yield from bindable(target, *(_variants(paired, message) for message in MESSAGES))


def _call(arguments: object) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def varied_texts(patch: Callable[..., Any], lengths: Tensor, names: list[str], message: str) -> dict[str, list[float]]:
    """Count, per row and template, the words and characters of a conversation that differ from the original template.

    The conversation ends with the message. More text after that of the original is allowed, such as an end token that
    the original template writes together with the next message. A message that the original template refuses counts as
    0.
    """
    counts = [int(words) for words in lengths.sum(1).tolist()]
    found: dict[str, list[float]] = {"count": [float(words) for words in counts]}
    for name in names:
        tokenizer: Any = make_tokenizer()
        tokenizer.bos_token = SPECIAL["bos_token"]  # which tokenizers with such templates have
        tokenizer.chat_template = original = patch.__globals__[name + ORIGINAL]
        variant = patch(tokenizer) or original
        found[name] = [
            _differences(original, variant, MESSAGES[message](reply(0, words, 0, thinks=False))) for words in counts
        ]
    return found


def _differences(original: str, variant: str, message: dict[str, Any]) -> float:
    conversation = [{"role": "user", "content": "w1 w2"}, message]
    expected, found = rendered(original, conversation), rendered(variant, conversation)
    if expected is None:
        return 0.0
    if found is not None and found.startswith(expected):
        return 0.0
    return count_differences(_words(found or ""), _words(expected))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\W", text)


def _variants(names: list[str], message: str) -> Boundary:
    result = Use("differ")
    texts = {
        f"words of {name} that differ from the original": Output(
            "B", "tokens", "tokens_off_template", at=result[name], form=ROWS
        )
        for name in names
    }
    return one_call(
        path=PATH,
        stage="batch",
        call=varied_texts,
        name="differ",
        arguments={
            "patch": Constant(Function(PATH)),
            "lengths": ResponseMask(NoPadding()),
            "names": Constant(names),
            "message": Knob("message"),
        },
        remembered=True,
        produced_by={"lengths": "sft_trainer.py and grpo_trainer.py, __init__: get_training_chat_template(tokenizer)"},
        outputs={"words": Output("B", "tokens", at=result["count"], form=ROWS), **texts},
        settings={message: {"message": message}},
        claims=claims(_SAYS),
        reach=f"a training template, and a conversation that ends with {message}",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )
