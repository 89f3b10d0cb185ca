"""TRL's supervised fine-tuning before 0.15: the token ids that its constructor makes of texts, whole or packed."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows, ids_of
from rl_sentinel.adapters.trl.optional_names import defined_names
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer
from rl_sentinel.adapters.trl.supervised import SFT
from rl_sentinel.adapters.trl.tiny_trainer import END, make_starting_tokenizer
from rl_sentinel.adapters.trl.token_differences import count_differences, token_outputs
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: The method of these releases that tokenizes texts.
TOKENIZES = "_prepare_non_packed_dataloader"

#: The module that finds out the format of a data set.
FORMATTING = "trl.extras.dataset_formatting"

#: Tokens of a packed sequence: no text has fewer, with its end token.
PACKED = 2

#: The maximum length of a row: some texts have fewer tokens, others have more.
LIMIT = 3

_DOCS = (
    "docs/source/sft_trainer.mdx: the texts of dataset_text_field are tokenized, and truncated to max_seq_length; "
    "conversations in the column messages are formatted with the chat template, which has its special tokens; "
    "ConstantLengthDataset, docstring: eos_token_id at the end of each sample being packed"
)


@dataclass(frozen=True)
class Data:
    """One format of data set: how a row is built from its index and its number of words, and the settings.

    A row keeps its first ``limit`` tokens.
    """

    row: Callable[[int, int], dict[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    packed: bool = False
    limit: int | None = None


def _words(row: int, count: int) -> str:
    """Words that no other row has."""
    return " ".join(f"w{3 + 5 * row + n}" for n in range(count))


def _text(row: int, count: int) -> dict[str, Any]:
    return {"text": _words(row, count)}


def _messages(row: int, count: int) -> dict[str, Any]:
    turns = (("user", "w1 w2"), ("assistant", _words(row, count)))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


_FIELD = {"dataset_text_field": "text"}

FORMS: Mapping[str, Data] = {
    "texts of a field": Data(_text, _FIELD),
    "texts over a limit": Data(_text, {**_FIELD, "max_seq_length": LIMIT}, limit=LIMIT),
    "conversations in a column": Data(_messages),
    "packed texts": Data(_text, {**_FIELD, "packing": True, "max_seq_length": PACKED}, packed=True),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each format, in releases that tokenize texts in a method of their own."""
    if not target.has(f"{SFT}.{TOKENIZES}") or target.fails(SFT):
        return
    source = inspect.getsource(inspect.getmodule(target.find(SFT)))  # type: ignore[arg-type]  # a class has a module
    for name, form in FORMS.items():
        formats = "get_formatting_func_from_dataset" in source or form.settings
        if formats and (not form.packed or "ConstantLengthDataset(" in source):
            yield from bindable(target, _prepared(name, form))


def _prepared(name: str, form: Data) -> Boundary:
    return one_call(
        path=SFT,
        stage="batch",
        call=compare_texts,
        name="differ",
        arguments={
            "trainer": Constant(Function(SFT)),
            "name": Constant(name),
            "lengths": ResponseMask(NoPadding()),
        },
        remembered=True,
        produced_by={"lengths": _DOCS},
        outputs=token_outputs(Use("differ")),
        settings={name: {}},
        claims=claims(_DOCS),
        reach="packing=True" if form.packed else f"every run, with {name}",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def compare_texts(trainer: Callable[..., Any], name: str, lengths: Tensor) -> dict[str, list[float]]:
    """Let a trainer prepare texts, and compare the prepared tokens with those of the texts.

    Returns, per row, ``count``: the number of its words; and ``tokens``: the number of its tokens that differ. In
    packed texts, these are the tokens that do not follow the token before them in their text.
    """
    form, counts = FORMS[name], lengths.sum(1).tolist()
    rows = [form.row(number, count) for number, count in enumerate(counts)]
    if "messages" in rows[0]:
        _know_lists(rows)
    with defined_names():  # some constructors read names of peft without asking for it
        ready = make_pair_trainer(trainer, rows=rows, tokenizer=make_starting_tokenizer, **form.settings)
    tokenizer = getattr(ready, "processing_class", None) or ready.tokenizer
    wholes = [expected_ids(tokenizer, row)[: form.limit] for row in rows]
    most = sum(len(whole) + 1 for whole in wholes) // PACKED if form.packed else len(rows)
    found = [[int(token) for token in row["input_ids"]] for row in islice(iter(ready.train_dataset), most)]
    if form.packed:
        off = wrong_in_packs(wholes, found)
        off[0] += most - len(found)
    else:
        lost = [list[int]()] * (len(rows) - len(found))
        off = [count_differences(own, whole) for own, whole in zip([*found, *lost], wholes, strict=True)]
    return {"count": [float(count) for count in counts], "tokens": off}


def _know_lists(rows: Sequence[Mapping[str, Any]]) -> None:
    """Let the trainer know conversations in the type that the installed version of datasets has for lists."""
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    known = importlib.import_module(FORMATTING).FORMAT_MAPPING
    known["chatml"] = Dataset.from_list([dict(row) for row in rows]).features["messages"]


def expected_ids(tokenizer: Any, row: Mapping[str, Any]) -> list[int]:  # noqa: ANN401 - a tokenizer
    """The tokens of a text with the special tokens that the tokenizer adds, or of a conversation in its template."""
    if "text" in row:
        return list(tokenizer(row["text"])["input_ids"])
    return ids_of(tokenizer, tokenizer.apply_chat_template(row["messages"], tokenize=False))


def wrong_in_packs(wholes: Sequence[list[int]], packs: Sequence[list[int]]) -> list[float]:
    """Count, per text, its tokens that follow a wrong token in a pack.

    Any text may follow the end token of another text.

    Example:
        >>> from rl_sentinel.adapters.trl.early_supervised import wrong_in_packs
        >>> wrong_in_packs([[5, 6], [7]], [[5, 6], [1, 7]]), wrong_in_packs([[5, 6], [7]], [[5, 7], [6, 1]])
        ([0.0, 0.0], [0.0, 1.0])
    """
    texts = [[*whole, END] for whole in wholes]
    allowed = {pair for text in texts for pair in pairwise(text)} | {(END, text[0]) for text in texts}
    owner = {token: row for row, text in reversed(list(enumerate(texts))) for token in text}
    off = [0.0] * len(wholes)
    for pack in packs:
        for before, after in pairwise(pack):
            off[owner.get(after, 0)] += float((before, after) not in allowed)
    return off
