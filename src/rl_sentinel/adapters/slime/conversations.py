"""slime's loss masks of conversations, compared with the chat template and the replies."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.chat_template import ChatTokenizer
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.conversations import conversation, difference_outputs, differences
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings

GENERATOR = "slime.utils.mask_utils.MultiTurnLossMaskGenerator"

#: Setting -> kind of tokenizer, system message that its template adds, and whether the data has a system message.
FAMILIES: Mapping[str, Settings] = {
    "qwen": {"kind": "qwen", "added": "You are a helpful assistant."},
    "qwen, system message": {"kind": "qwen", "added": "You are a helpful assistant.", "system": True},
    "qwen3": {"kind": "qwen3", "added": ""},
    "qwen3, system message": {"kind": "qwen3", "added": "", "system": True},
}

_CALLER = (
    "slime/rollout/sft_rollout.py, generate_rollout: get_loss_mask(messages) for conversations of a data set; "
    "slime/utils/arguments.py: --loss-mask-type, qwen by default"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the mask generator, for each kind of tokenizer with a template in this audit."""
    if target.has(f"{GENERATOR}.get_loss_mask") and not target.fails(GENERATOR):
        yield from bindable(target, *(_generator(name, settings) for name, settings in FAMILIES.items()))


def mask_differences(
    generator: Callable[..., Any],
    kind: str,
    added: str,
    masks: list[list[int]],
    system: bool = False,  # noqa: FBT001, FBT002 - a setting
) -> dict[str, list[float]]:
    """Count differences from the chat template per conversation, in tokens and masks (see :func:`differences`)."""
    first = [{"role": "system", "content": "answer briefly"}] if system else []
    tokenizer = ChatTokenizer(added)
    mask_generator = generator(tokenizer, tokenizer_type=kind)
    counts = []
    for mask in masks:
        whole = [*first, *conversation(mask)]
        counts.append(differences(tokenizer, whole, *mask_generator.get_loss_mask(whole)))
    return {"tokens": [tokens for tokens, _ in counts], "masks": [wrong for _, wrong in counts]}


def _generator(name: str, settings: Settings) -> Boundary:
    return one_call(
        path=f"{GENERATOR}.get_loss_mask",
        stage="batch",
        call=mask_differences,
        name="differ",
        arguments={
            "generator": Constant(Function(GENERATOR)),
            **knobs("kind", "added"),
            "masks": EachRow(RowTokens("mask", "int")),
            "system": Knob("system", default=False),
        },
        produced_by={"masks": _CALLER},
        reads=frozenset({"mask", "length"}),
        outputs=difference_outputs(Use("differ")),
        settings={name: settings},
        reach=f"--loss-mask-type {settings['kind']}",
        requires=(no_empty_response,),
    )
