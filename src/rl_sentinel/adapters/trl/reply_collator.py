"""TRL's collator that trains only on replies: which tokens of a conversation have a label."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD
from rl_sentinel.adapters.trl.tiny_trainer import END, make_tokenizer
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

COLLATOR = "trl.trainer.utils.DataCollatorForCompletionOnlyLM"

_REPLIES = (
    "trainer/utils.py, DataCollatorForCompletionOnlyLM, docstring: labels are ignored where they do not come from the "
    "assistant; with an instruction template, in each turn"
)
_ROWS = "docs/source/sft_trainer.mdx, Train on completions only: rows of token ids, which the trainer has truncated"

#: Template tokens before a question, before a reply, and before a question at the start of a text.
QUESTION, REPLY, AT_START = 30, 31, 29

#: A token before the first question, as of a system message.
SYSTEM = 28

#: Setting -> how the conversations differ from those of one turn.
TURNS: Mapping[str, Settings] = {
    "one turn": {"several_turns": False},
    "several turns": {"several_turns": True},
    # docs/source/sft_trainer.mdx: some tokenizers tokenize sequences differently depending on their context
    "several turns, other tokens at the start": {"several_turns": True, "start_differs": True},
    # sft_trainer.py: texts are truncated to max_seq_length, so that the last reply may be missing
    "several turns, truncated": {"several_turns": True, "truncated": True},
    "one turn, padded at the left": {"several_turns": False, "padded_left": True},
    "several turns, padded at the left": {"several_turns": True, "padded_left": True},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the collator for each form of conversations, in releases that accept it."""
    if not target.has(COLLATOR) or target.fails(COLLATOR):
        return
    source = inspect.getsource(target.find(COLLATOR))
    for name, settings in TURNS.items():
        if not settings["several_turns"] or "instruction_template" in source:
            yield from bindable(target, _collator(name, settings))


def _collator(name: str, settings: Settings) -> Boundary:
    form, place = PerRow("list"), Use("differ")
    return one_call(
        path=f"{COLLATOR}.torch_call",
        stage="batch",
        call=reply_mask_differences,
        name="differ",
        arguments={
            "make": Constant(Function(COLLATOR)),
            "lengths": ResponseMask(NoPadding()),
            "several": Knob("several_turns"),
            "start": Knob("start_differs", default=False),
            "cut": Knob("truncated", default=False),
            "left": Knob("padded_left", default=False),
        },
        produced_by={"lengths": _ROWS},
        outputs={
            "trained": Output("B", "tokens", at=place["trained"], form=form),
            "number of mask values that differ from the replies": Output(
                "B", "tokens", "mask_off_replies", at=place["masks"], form=form
            ),
        },
        settings={name: settings},
        claims=claims(_REPLIES),
        reach=f"data_collator=DataCollatorForCompletionOnlyLM, {name}",
        requires=(no_empty_response,),
    )


def conversation(row: int, length: int, *, several: bool) -> tuple[list[int], list[bool]]:
    """The tokens of a conversation, and whether each is part of a reply. With ``several``, odd rows have two turns."""
    reply = [4 + n % 20 for n in range(length)]
    turns = [([3, 3], reply)] + ([([4], [5, 3])] if several and row % 2 else [])
    ids, trains = list[int](), list[bool]()
    for question, answer in turns:
        ids += [QUESTION, *question, REPLY, *answer, END]
        trains += [False] * (len(question) + 2) + [True] * (len(answer) + 1)
    return ids, trains


def without_last_reply(ids: list[int], trains: list[bool]) -> tuple[list[int], list[bool]]:
    """A conversation after a system message, truncated before its last reply."""
    end = len(ids) - 1 - ids[::-1].index(REPLY)
    return [SYSTEM, *ids[:end]], [False, *trains[:end]]


def template_of(make: Callable[..., Any], name: str, token: int) -> list[int] | str:
    """A template of one token; as a text in releases whose parameter ``name`` takes no ids."""
    takes_ids = "list" in str(inspect.signature(make).parameters[name].annotation).lower()
    return [token] if takes_ids else f"w{token - FIRST_WORD}"


def reply_mask_differences(  # noqa: PLR0913 - a collator, its rows, and their form
    make: Callable[..., Any], lengths: Tensor, *, several: bool, start: bool, cut: bool, left: bool
) -> dict[str, list[float]]:
    """Collate conversations, and compare their labels with their replies.

    Returns, per row, ``trained``: the number of trained tokens; and ``masks``: the number of wrong labels.

    Args:
        make: the class of the collator.
        lengths: ``[B, T]``; the sum of a row is the number of tokens of its reply.
        several: whether odd rows have two turns; the collator then gets an instruction template, too.
        start: whether the first question of each row has the token :data:`AT_START`.
        cut: whether conversations are truncated before their last reply.
        left: whether the tokenizer pads on the left.
    """
    counts = lengths.sum(1).tolist()
    rows = [conversation(row, count, several=several) for row, count in enumerate(counts)]
    if start:  # two turns each: a conversation without any known question is not trained, with a warning
        whole = (conversation(1, count, several=True) for count in counts)
        rows = [([AT_START, *ids[1:]], trains) for ids, trains in whole]
    if cut:
        rows = [without_last_reply(*row) for row in rows]
    tokens = {"response_template": REPLY, **({"instruction_template": QUESTION} if several else {})}
    templates = {name: template_of(make, name, token) for name, token in tokens.items()}
    tokenizer = make_tokenizer()
    tokenizer.padding_side = "left" if left else "right"
    collate = make(tokenizer=tokenizer, mlm=False, **templates)
    labels = collate([{"input_ids": ids} for ids, _ in rows])["labels"].tolist()
    trained = [[label != -100 for label in row] for row in labels]
    wrong = [
        sum(a != b for a, b in zip(mask, whole_mask(expected, len(mask), left=left), strict=True))
        for mask, (_, expected) in zip(trained, rows, strict=True)
    ]
    return {"trained": [float(sum(row)) for row in trained], "masks": [float(count) for count in wrong]}


def whole_mask(expected: list[bool], width: int, *, left: bool) -> list[bool]:
    """The expected mask of a padded row: padding, at either side, is not trained."""
    padding = [False] * (width - len(expected))
    return [*padding, *expected] if left else [*expected, *padding]
