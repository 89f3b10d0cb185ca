"""TRL's chat templates for training: which characters of a reply train, at the end and inside a conversation."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant
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
    in_parts,
)
from rl_sentinel.adapters.trl.templates import reply
from rl_sentinel.adapters.trl.tiny_trainer import make_tokenizer
from rl_sentinel.adapters.trl.token_differences import ROWS
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

_SAYS = (
    "trl/chat_templates/README.md, training templates: generation markers around each assistant turn, for a loss on "
    "these only; a turn is generated until its end token, whatever message follows"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training variants, in releases whose variants mark the text that the model generates."""
    if not target.has(PATH) or target.fails(PATH):
        return
    module = vars(target.module(MODULE))
    names = [name.removesuffix(TRAINING) for name in module if name.endswith(TRAINING) and "get_" not in name]
    marked = [name for name in names if "generation %}" in str(module[name + TRAINING]) and name + ORIGINAL in module]
    if marked:
        compile_templates(target, marked, (ORIGINAL, TRAINING))
        yield from bindable(target, _variants(sorted(marked)))


def trained_parts(patch: Callable[..., Any], lengths: Tensor, names: list[str]) -> dict[str, list[float]]:
    """Per template and row, the number of characters at the end of a reply that train in only one of two conversations.

    One conversation ends with the reply, the other continues after it.
    """
    counts = [int(words) for words in lengths.sum(1).tolist()]
    found: dict[str, list[float]] = {"count": [float(words) for words in counts]}
    for name in names:
        tokenizer: Any = make_tokenizer()
        tokenizer.bos_token = SPECIAL["bos_token"]  # which tokenizers with such templates have
        tokenizer.chat_template = patch.__globals__[name + ORIGINAL]
        template = patch(tokenizer) or tokenizer.chat_template
        found[name] = [_cut_off(template, words) for words in counts]
    return found


def _cut_off(template: str, words: int) -> float:
    """How many characters at the end of a reply train in only one conversation.

    The result is 0 if neither text starts with the other: some formats have two end tokens.
    """
    asked = {"role": "user", "content": "w1 w2"}
    talk = [asked, {"role": "assistant", "content": reply(0, words, 0, thinks=False)}]
    alone, followed = (_trained(template, conversation) for conversation in (talk, [*talk, asked]))
    cut = alone.startswith(followed) or followed.startswith(alone)
    return float(abs(len(alone) - len(followed))) if cut else 0.0


def _trained(template: str, conversation: list[dict[str, str]]) -> str:
    """The first part of a conversation that is marked as generated; empty if no part is."""
    render = importlib.import_module("transformers.utils.chat_template_utils").render_jinja_template
    errors = importlib.import_module("jinja2").TemplateError
    try:
        (text,), (parts,) = render([conversation], chat_template=template, return_assistant_tokens_mask=True, **SPECIAL)
    except errors:
        (text,), (parts,) = render(
            [in_parts(conversation)], chat_template=template, return_assistant_tokens_mask=True, **SPECIAL
        )
    start, end = parts[0] if parts else (0, 0)
    return str(text[start:end])


def _variants(names: list[str]) -> Boundary:
    result = Use("differ")
    masks = {
        f"characters of {name} that train": Output("B", "tokens", "mask_off_replies", at=result[name], form=ROWS)
        for name in names
    }
    return one_call(
        path=PATH,
        stage="batch",
        call=trained_parts,
        name="differ",
        arguments={
            "patch": Constant(Function(PATH)),
            "lengths": ResponseMask(NoPadding()),
            "names": Constant(names),
        },
        remembered=True,
        produced_by={"lengths": "sft_trainer.py, _prepare_dataset: conversations, with assistant_only_loss=True"},
        outputs={"words": Output("B", "tokens", at=result["count"], form=ROWS), **masks},
        settings={"the last reply": {}},
        claims=claims(_SAYS),
        reach="assistant_only_loss=True, a conversation that ends with a reply",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )
