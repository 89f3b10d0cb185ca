"""TRL's sequence packing, and its collator that trains only on replies."""

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
from rl_sentinel.adapters.trl.tiny_trainer import END, make_tokenizer
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

PACK = "trl.data_utils.pack_dataset"
COLLATOR = "trl.trainer.utils.DataCollatorForCompletionOnlyLM"

#: Packing strategies that keep all tokens of sequences that fit.
STRATEGIES = ("bfd", "bfd_split", "bfd-requeue", "ffd", "wrapped")

#: A packed sequence may exceed the longest sequence by this many tokens.
ROOM = 2

_PACKED = "data_utils.py, pack_dataset, docstring: sequences are packed into chunks; boundaries or all tokens are kept"
_REPLIES = (
    "trainer/utils.py, DataCollatorForCompletionOnlyLM, docstring: labels are ignored where they do not come from the "
    "assistant; with an instruction template, in each turn"
)

#: Template tokens before a question, before a reply, and before a question at the start of a text.
QUESTION, REPLY, AT_START = 30, 31, 29

#: Setting -> whether conversations have several turns, and whether a text starts with another token than later turns
#: (docs/source/sft_trainer.mdx: some tokenizers tokenize sequences differently depending on whether they have context).
TURNS: Mapping[str, Settings] = {
    "one turn": {"several_turns": False, "start_differs": False},
    "several turns": {"several_turns": True, "start_differs": False},
    "several turns, other tokens at the start": {"several_turns": True, "start_differs": True},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each packing strategy, and the collator on conversations of one turn and of several turns."""
    if target.has(PACK) and not target.fails(PACK):
        for name in STRATEGIES:
            if f'"{name}"' in _module_source(target, PACK):
                yield from bindable(target, _packing(name))
    if target.has(COLLATOR) and not target.fails(COLLATOR):
        for name, settings in TURNS.items():
            if not settings["several_turns"] or "instruction_template" in _module_source(target, COLLATOR):
                yield from bindable(target, _collator(name, settings))


def _module_source(target: Target, path: str) -> str:
    """The source of the module that defines a function or class."""
    return inspect.getsource(inspect.getmodule(target.find(path)))  # type: ignore[arg-type]  # both have a module


def _packing(strategy: str) -> Boundary:
    step = Step(
        call=uses_in_packs,
        name="uses",
        arguments={
            "pack": Constant(Function(PACK)),
            "lengths": ResponseMask(NoPadding()),
            "strategy": Knob("strategy"),
        },
        remembered=True,
        produced_by={"lengths": "sft_trainer.py, _prepare_dataset: tokenized sequences, then pack_dataset"},
    )
    return Boundary(
        path=PACK,
        stage="batch",
        steps=(step,),
        outputs={"uses": Output("B", "count", "uses", at=Use("uses"), form=PerRow("list"))},
        settings={strategy: {"strategy": strategy}},
        claims=claims(_PACKED),
        reach=f"packing=True, packing_strategy={strategy}",
        requires=(no_empty_response,),
    )


def uses_in_packs(pack: Callable[..., Any], lengths: Tensor, strategy: str) -> list[float]:
    """Pack sequences; return how many of each sequence's tokens have a correct label, divided by its length.

    The result is 0 for a sequence whose tokens are reordered.
    """
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    counts = lengths.sum(1).tolist()
    rows = [[100 * (row + 1) + n for n in range(count)] for row, count in enumerate(counts)]
    whole = Dataset.from_dict({"input_ids": rows, "labels": [[-token for token in row] for row in rows]})
    packed = pack(whole, max(counts) + ROOM, strategy)
    pairs = [pair for pack_ in packed for pair in zip(pack_["input_ids"], pack_["labels"], strict=True)]
    correct = [token for token, label in pairs if label == -token]
    by_row = [[token for token in correct if token // 100 == row + 1] for row in range(len(rows))]
    return [len(own) / len(ids) if sorted(own) == own else 0.0 for own, ids in zip(by_row, rows, strict=True)]


def _collator(name: str, settings: Settings) -> Boundary:
    step = Step(
        call=reply_mask_differences,
        name="differ",
        arguments={
            "make": Constant(Function(COLLATOR)),
            "lengths": ResponseMask(NoPadding()),
            "several": Knob("several_turns"),
            "start": Knob("start_differs"),
        },
        produced_by={"lengths": "docs/source/sft_trainer.mdx, Train on completions only: rows of token ids"},
    )
    form, place = PerRow("list"), Use("differ")
    return Boundary(
        path=f"{COLLATOR}.torch_call",
        stage="batch",
        steps=(step,),
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


def reply_mask_differences(
    make: Callable[..., Any], lengths: Tensor, *, several: bool, start: bool
) -> dict[str, list[float]]:
    """Collate conversations; return the numbers of trained tokens and of wrong labels in each row."""
    counts = lengths.sum(1).tolist()
    rows = [conversation(row, count, several=several) for row, count in enumerate(counts)]
    if start:  # two turns each: a conversation without any known question is not trained, with a warning
        whole = (conversation(1, count, several=True) for count in counts)
        rows = [([AT_START, *ids[1:]], trains) for ids, trains in whole]
    template = {"instruction_template": [QUESTION]} if several else {}
    tokenizer = make_tokenizer()
    tokenizer.padding_side = "right"
    collate = make(response_template=[REPLY], tokenizer=tokenizer, mlm=False, **template)
    labels = collate([{"input_ids": ids} for ids, _ in rows])["labels"].tolist()
    trained = [[label != -100 for label in row] for row in labels]
    wrong = [
        sum(a != b for a, b in zip(mask, [*expected, *[False] * len(mask)], strict=False))
        for mask, (_, expected) in zip(trained, rows, strict=True)
    ]
    return {"trained": [float(sum(row)) for row in trained], "masks": [float(count) for count in wrong]}
