"""TRL's supervised trainer, from texts to collated labels: trained tokens, end tokens and padding."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.supervised import SFT
from rl_sentinel.adapters.trl.token_differences import count_differences, mask_output, token_outputs
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: A label that is not trained.
IGNORED = -100

#: Columns of a prepared row that may matter to the collator.
COLUMNS = ("input_ids", "attention_mask", "labels", "completion_mask", "assistant_masks", "seq_lengths")

#: The attention that flat batches require; nothing is passed through the model here.
FLAT_ATTENTION = "flash_attention_2"

_DOCS = (
    "docs/source/sft_trainer.md: the loss is over the tokens of the text, over those of the completion for a prompt "
    "and a completion; padding does not contribute; the text's end token is a token of the text; trainer/utils.py: an "
    "end token at the end of a text teaches the model to end it"
)


@dataclass(frozen=True)
class Data:
    """One format of data set. ``row`` builds a row with a given number of words; the other fields are settings.

    ``needs`` is a pattern in the source of releases that accept the format. With ``completion``, only the completion
    trains, which releases do by themselves for prompts with completions.
    """

    row: Callable[[int], dict[str, Any]]
    padding: str = "<pad>"
    flat: bool = False
    needs: str = ""
    completion: bool = False


def _words(count: int) -> str:
    return " ".join(f"w{3 + number}" for number in range(count))


def _text(count: int) -> dict[str, Any]:
    return {"text": f"{_words(count)} <eos>"}


def _open_text(count: int) -> dict[str, Any]:
    return {"text": _words(count)}


def _messages(count: int) -> dict[str, Any]:
    turns = (("user", "w1 w2"), ("assistant", _words(count)))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def _completion(count: int) -> dict[str, Any]:
    return {"prompt": "w1 w2", "completion": f" {_words(count)} <eos>"}


def _labeled(count: int) -> dict[str, Any]:
    ids = [4, 5, *range(6, 6 + count), 1]
    return {"input_ids": ids, "labels": [IGNORED, IGNORED, *ids[2:]]}


def _masked(count: int) -> dict[str, Any]:
    ids = [4, 5, *range(6, 6 + count), 1]
    return {"input_ids": ids, "completion_mask": [0, 0, *[1] * (count + 1)]}


FORMS: dict[str, Data] = {
    "texts": Data(_text),
    "texts without an end token": Data(_open_text),
    "texts, padded with the end token": Data(_text, padding="<eos>"),
    "messages, padded with the end token": Data(_messages, padding="<eos>"),
    "completions, padded with the end token": Data(_completion, padding="<eos>", needs='"completion_mask"'),
    "tokens with a completion mask": Data(_masked, needs='"completion_mask"', completion=True),
    "tokens with labels": Data(_labeled, needs=r'example(\.get\(|\[)"labels"'),
    "texts, padding-free": Data(_text, flat=True),
    "completions, padding-free": Data(_completion, flat=True, needs='"completion_mask"'),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's data set and collator, for each data format that the release accepts."""
    if not target.has(SFT) or target.fails(SFT) or not fields_of(target, SFT):
        return
    source = inspect.getsource(inspect.getmodule(target.find(SFT)))  # type: ignore[arg-type]  # a class has a module
    if "apply_chat_template" not in source:
        return  # texts are tokenized elsewhere
    known = fields_of(target, SFT)
    for name, form in FORMS.items():
        if (form.flat and "padding_free" not in known) or not re.search(form.needs, source):
            continue
        yield from bindable(target, _collated(name, form))


def compare_labels(trainer: Callable[..., Any], name: str, lengths: Tensor) -> dict[str, list[float]]:
    """Count, per row, the tokens, the tokens that are wrong after collation, and the wrong labels.

    A wrong end token, or one that does not train, is one more wrong token.
    """
    form, words = FORMS[name], lengths.sum(1).tolist()
    settings: dict[str, Any] = {"padding_free": True, "attention": FLAT_ATTENTION} if form.flat else {}
    settings |= {"remove_unused_columns": True}  # the default
    settings |= {"completion_only_loss": True} if form.completion else {}
    ready = make_pair_trainer(trainer, rows=[form.row(count) for count in words], padding=form.padding, **settings)
    prepared = [
        _with_stated_labels(dict(row), form.row(count)) for row, count in zip(ready.train_dataset, words, strict=True)
    ]
    batch = ready.data_collator(collated_rows(ready))
    ids = [list(row["input_ids"]) for row in prepared]
    collated = rows_of(batch, [len(own) for own in ids], flat=form.flat)
    wrong = [
        (*_differences(row, found, flat=form.flat), _end_differs(row))
        for row, found in zip(prepared, collated, strict=True)
    ]
    return {
        "count": [float(len(own)) for own in ids],
        "tokens": [tokens + end for tokens, _, end in wrong],
        "masks": [labels for _, labels, _ in wrong],
    }


def _with_stated_labels(prepared: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The prepared tokens with the labels or mask of the data set's row; without these, the prepared row."""
    stated: dict[str, Any] = {name: row[name] for name in ("labels", "completion_mask") if name in row}
    return {"input_ids": prepared["input_ids"], **stated} if stated else prepared


def collated_rows(trainer: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a trainer
    """The rows of the data set with the columns that the trainer keeps for its collator."""
    rows = trainer._remove_unused_columns(trainer.train_dataset, description="training")  # noqa: SLF001 - as its data loader
    return [{name: row[name] for name in COLUMNS if name in row} for row in rows]


@dataclass(frozen=True)
class Collated:
    """One row of a collated batch: its tokens, labels and positions, and the labels at its padding."""

    ids: list[int]
    labels: list[int]
    positions: list[int]
    padding: list[int]


def rows_of(batch: Any, lengths: Sequence[int], *, flat: bool) -> list[Collated]:  # noqa: ANN401 - a dict of tensors
    """The rows of a collated batch; ``flat`` batches have the rows one after the other, without padding."""
    ids, labels = batch["input_ids"], batch["labels"]
    positions = batch.get("position_ids")
    if not flat:
        kept = batch["attention_mask"].bool()  # padding may be at either side
        return [
            Collated(ids[row][own].tolist(), labels[row][own].tolist(), list(range(n)), labels[row][~own].tolist())
            for row, (n, own) in enumerate(zip(lengths, kept, strict=True))
        ]
    counted = torch.zeros_like(ids) if positions is None else positions
    parts = (torch.split(values.flatten(), list(lengths)) for values in (ids, labels, counted))
    return [
        Collated(own.tolist(), trained.tolist(), places.tolist(), [])
        for own, trained, places in zip(*parts, strict=True)
    ]


def _differences(row: dict[str, Any], found: Collated, *, flat: bool) -> tuple[float, float]:
    """The number of wrong tokens and positions, and the number of wrong labels.

    No token predicts the first token of a row, so that token needs no label. A padded batch may still give it a label,
    because the loss drops that label. In a flat batch it must not, because the last token of the previous row would
    predict it.
    """
    ids, trained = list(row["input_ids"]), _trained(row)
    expected = [token if trains else IGNORED for token, trains in zip(ids, trained, strict=True)]
    first = [IGNORED] if flat else found.labels[:1]
    labels = count_differences(found.labels, [*first, *expected[1:]])
    tokens = count_differences(found.ids, ids) + count_differences(found.positions, range(len(ids)))
    return tokens, labels + float(sum(label != IGNORED for label in found.padding))


def _trained(row: dict[str, Any]) -> list[int]:
    """1 for each trained token of a prepared row, else 0: from its labels, else from its masks; without both, all 1."""
    if row.get("labels") is not None:
        return [int(label != IGNORED) for label in row["labels"]]
    masks = [row[name] for name in ("completion_mask", "assistant_masks") if row.get(name) is not None]
    return [int(all(values)) for values in zip(*masks, strict=True)] if masks else [1] * len(row["input_ids"])


def _end_differs(row: dict[str, Any]) -> float:
    """1 if the row does not end with exactly one end token, or does not train that token; else 0."""
    end = [token == 1 for token in row["input_ids"][-2:]]
    return float(end != [False, True] or not _trained(row)[-1])


def _collated(name: str, form: Data) -> Boundary:
    arguments: dict[str, Codec] = {
        "trainer": Constant(Function(SFT)),
        "name": Constant(name),
        "lengths": ResponseMask(NoPadding()),
    }
    result = Use("differ")
    return one_call(
        path=SFT,
        stage="batch",
        call=compare_labels,
        name="differ",
        arguments=arguments,
        remembered=True,
        produced_by={"lengths": _DOCS},
        outputs=token_outputs(result) | mask_output(result),
        settings={name: {}},
        claims=claims(_DOCS),
        reach="padding_free=True" if form.flat else f"every step, with a data set of {name}",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )
