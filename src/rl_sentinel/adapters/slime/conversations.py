"""slime's loss masks of conversations: tokens and mask of its generator beside those of the template."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.chat_template import REPLY, ChatTokenizer, Message
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings

GENERATOR = "slime.utils.mask_utils.MultiTurnLossMaskGenerator"

#: Setting -> the kind of tokenizer, the message that its template adds, and whether the data has one.
FAMILIES: Mapping[str, Settings] = {
    "qwen": {"kind": "qwen", "added": "You are a helpful assistant."},
    "qwen, system message": {"kind": "qwen", "added": "You are a helpful assistant.", "system": True},
    "qwen3": {"kind": "qwen3", "added": ""},
    "qwen3, system message": {"kind": "qwen3", "added": "", "system": True},
}

_CALLER = (
    "slime/rollout/sft_rollout.py, generate_rollout: get_loss_mask(messages) of a data set's conversations; "
    "slime/utils/arguments.py: --loss-mask-type, qwen by default"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The generator for each kind of tokenizer that the template here is of."""
    if target.has(f"{GENERATOR}.get_loss_mask") and not target.fails(GENERATOR):
        yield from bindable(target, *(_generator(name, settings) for name, settings in FAMILIES.items()))


def conversation(mask: list[int]) -> list[Message]:
    """A question, then a reply for each run of trained tokens, and a message for each token between.

    That is the result of a tool, but before the first reply, where the user goes on.
    """
    messages: list[Message] = [{"role": "user", "content": "what is it"}]
    other = "user"
    for trained, run in groupby(mask):
        words = [f"word{position}" for position, _ in enumerate(run)]
        if trained:
            messages.append({"role": REPLY, "content": " ".join(words)})
            other = "tool"
        else:
            messages += [{"role": other, "content": word} for word in words]
    return messages


def differences(
    generator: Callable[..., Any],
    kind: str,
    added: str,
    masks: list[list[int]],
    system: bool = False,  # noqa: FBT001, FBT002 - a setting
) -> dict[str, list[float]]:
    """At how many tokens each conversation differs from its template, and its mask from the replies."""
    first = [{"role": "system", "content": "answer briefly"}] if system else []
    tokenizer = ChatTokenizer(added)
    made = generator(tokenizer, tokenizer_type=kind)
    tokens, trains_wrongly = [], []
    for mask in masks:
        whole = [*first, *conversation(mask)]
        found, trained = made.get_loss_mask(whole)
        parts = [(tokenizer(text)["input_ids"], trains) for text, trains in tokenizer.parts(whole)]
        wanted = [token for part, _ in parts for token in part]
        free = tokenizer("\n")["input_ids"]
        replies = [trains or None if part == free else trains for part, trains in parts for _ in part]
        tokens.append(_unlike(found, wanted))
        trains_wrongly.append(_unlike([bool(one) for one in trained], replies) if tokens[-1] == 0 else 0.0)
    return {"tokens": tokens, "masks": trains_wrongly}


def _unlike(found: list[Any], wanted: list[Any]) -> float:
    """Positions at which two lists differ, None being equal to all, and those that only one of them has."""
    unlike = sum(w is not None and f != w for f, w in zip(found, wanted, strict=False))
    return float(unlike + abs(len(found) - len(wanted)))


def _generator(name: str, settings: Settings) -> Boundary:
    step = Step(
        call=differences,
        name="differ",
        arguments={
            "generator": Constant(Function(GENERATOR)),
            "kind": Knob("kind"),
            "added": Knob("added"),
            "masks": EachRow(RowTokens("mask", "int")),
            "system": Knob("system", default=False),
        },
        produced_by={"masks": _CALLER},
    )
    differ, form = Use("differ"), PerRow("list")
    return Boundary(
        path=f"{GENERATOR}.get_loss_mask",
        stage="batch",
        steps=(step,),
        reads=frozenset({"mask", "length"}),
        outputs={
            "tokens unlike the template": Output("B", "tokens", "tokens_off_template", at=differ["tokens"], form=form),
            "mask unlike the replies": Output("B", "tokens", "mask_off_replies", at=differ["masks"], form=form),
        },
        settings={name: settings},
        reach=f"--loss-mask-type {settings['kind']}",
        requires=(no_empty_response,),
    )
