"""Boundary of verl's conversation data set: tokens and loss mask against the chat template, length limits."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.chat_template import ChatTokenizer
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.conversations import conversation, difference_outputs, differences
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.megatron import SilentLogger
from rl_sentinel.core.batch import Batch, take_positions, take_rows, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

MODULE = "verl.utils.dataset.multiturn_sft_dataset"
DATASET = f"{MODULE}.MultiTurnSFTDataset"

#: Maximum number of conversations, and of words of their turns.
ROWS, TOKENS = 2, 5

#: Setting -> role after a reply, system message of the template and of the template's options, limit on the tokens.
FAMILIES: Mapping[str, Settings] = {
    "users": {"answer": "user", "added": "be brief", "pad_mode": "right"},
    "system in the template's options": {"answer": "user", "added": "be brief", "option": "be kind and clear"},
    "limit, cut at the right": {"answer": "user", "added": "", "truncation": "right", "limit": 12},
    "limit, cut at the left": {"answer": "user", "added": "", "truncation": "left", "limit": 12, "pad_mode": "right"},
    "limit, cut at the left, unpadded": {"answer": "user", "added": "", "truncation": "left", "limit": 12},
}

_DOCS = (
    "multiturn_sft_dataset.py, docstrings: each assistant response is trained, without its generation prompt; the "
    "tokens are those of the chat template for the whole conversation; it is truncated left or right"
)
_ROWS = (
    "a Parquet file with a column of messages, as examples/data_preprocess/gsm8k_multiturn_sft.py writes it; "
    "trainer/config/data/legacy_data.yaml and sft_trainer_engine.yaml: max_length, truncation, pad_mode"
)


@dataclass
class Frame:
    """A fake pandas data frame over dicts, with the methods that the data set uses."""

    rows: list[dict[str, Any]]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __getitem__(self, name: str) -> "Frame":
        """One column as a frame."""
        return Frame([row[name] for row in self.rows])

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.rows[0])

    @property
    def iloc(self) -> Any:  # noqa: ANN401 - rows by number
        """Rows by index, as objects with the method ``to_dict``."""
        return [SimpleNamespace(to_dict=lambda row=row: dict(row)) for row in self.rows]

    def apply(self, function: Callable[[Any], Any]) -> "Frame":
        """Apply ``function`` to each value of a column."""
        return Frame([function(value) for value in self.rows])

    def tolist(self) -> list[Any]:
        """The values of a column."""
        return self.rows


def pandas_of(rows: list[list[dict[str, Any]]]) -> SimpleNamespace:
    """A fake pandas: its Parquet file contains conversations, as lists with pyarrow's types, else as arrays."""

    def read_parquet(_path: str, dtype_backend: str = "") -> Frame:
        values = rows if dtype_backend == "pyarrow" else [np.array(row, dtype=object) for row in rows]
        return Frame([{"messages": value} for value in values])

    series = SimpleNamespace(series=SimpleNamespace(Series=Frame))
    return SimpleNamespace(read_parquet=read_parquet, concat=lambda frames: frames[0], core=series)


def dataset_of(
    dataset: Callable[..., Any],
    rows: list[list[dict[str, Any]]],
    tokenizer: ChatTokenizer,
    config: dict[str, Any],
) -> Any:  # noqa: ANN401 - of that class
    """A data set of verl that reads these conversations instead of a Parquet file."""
    names, pandas = vars(dataset)["__init__"].__globals__, pandas_of(rows)
    modules: dict[str, Any] = sys.modules
    before, installed = names["pd"], modules.get("pandas")
    names["pd"] = modules["pandas"] = pandas  # older releases import it in a method, too
    try:
        return dataset("conversations.parquet", tokenizer, config)
    finally:
        names["pd"] = before
        if installed is None:
            del modules["pandas"]
        else:
            modules["pandas"] = installed


def tokenized_differences(  # noqa: PLR0913 - a setting has several parts
    dataset: Callable[..., Any],
    masks: list[list[int]],
    answer: str,
    added: str,
    option: str,
    truncation: str,
    limit: int,
    pad_mode: str,
) -> dict[str, list[float]]:
    """For each conversation, count the tokens that differ from its rendering by the template, and wrong mask values.

    Mask values are compared only if no token differs. A position id that is not one above the previous one counts as a
    wrong token, and a trained padding token as a wrong mask value, in any case.
    """
    conversations = [conversation(mask, answer) for mask in masks]
    config = {
        "pad_mode": pad_mode,
        "max_length": limit,
        "truncation": truncation,
        "apply_chat_template_kwargs": {"system": option} if option else {},
        "ignore_input_ids_mismatch": True,  # otherwise, some releases refuse wrong tokens
    }
    made = dataset_of(dataset, conversations, ChatTokenizer(added), config)
    expected = ChatTokenizer(option or added, made.tokenizer._numbers)  # noqa: SLF001 - the same words
    counts = []
    for number, messages in enumerate(conversations):
        row = made[number]
        length = len(expected.apply_chat_template(messages))
        kept = slice(None)
        if length > limit:
            kept = slice(length - limit, None) if truncation == "left" else slice(limit)
        own = row["attention_mask"].bool() if "attention_mask" in row else torch.ones_like(row["input_ids"]).bool()
        tokens, mask = row["input_ids"][own].tolist(), row["loss_mask"][own].tolist()
        wrong_tokens, wrong_mask = differences(expected, messages, tokens, mask, kept)
        wrong_mask += float(row["loss_mask"][~own].sum())
        counts.append((wrong_tokens + _gaps(row["position_ids"][own]), wrong_mask))
    return {"tokens": [tokens for tokens, _ in counts], "masks": [wrong for _, wrong in counts]}


def _gaps(positions: Tensor) -> float:
    """The number of position ids that are not one above the previous position id."""
    return float((positions.diff() != 1).sum())


def same_path(path: str, **_about: object) -> str:
    """Return the path without a download."""
    return path


_FAKES: Mapping[str, Callable[..., Any]] = {
    f"{MODULE}.copy_local_path_from_hdfs": same_path,
    f"{MODULE}.logger": SilentLogger,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data set of conversations."""
    if target.has(DATASET) and not target.fails(DATASET):
        yield from try_bind(target, DATASET, "batch", lambda: _conversations(target))


def a_few_turns(batch: Batch) -> Batch:
    """The first :data:`ROWS` rows with at most :data:`TOKENS` tokens, which begin with a reply to the first question.

    Conversations do not depend on each other, and some releases refuse a conversation without that reply.
    """
    few = take_rows(batch, torch.arange(ROWS)) if batch.rows > ROWS else batch
    few = take_positions(few, torch.arange(TOKENS)) if few.width > TOKENS else few
    if bool(few.mask[:, 0].all()):
        return few
    return with_columns(few, mask=few.mask | (torch.arange(few.width) == 0))


def _conversations(target: Target) -> Iterator[Boundary]:
    source = inspect.getsource(target.find(DATASET))
    for name, settings in FAMILIES.items():
        if "option" in settings and "apply_chat_template_kwargs" not in source:
            continue
        yield _dataset(target, name, settings)


def _reach(settings: Settings) -> str:
    """The options of ``data`` under which supervised fine-tuning has this setting."""
    if "limit" not in settings:
        return "every step of supervised fine-tuning on conversations"
    options = {"truncation": settings["truncation"], "pad_mode": settings.get("pad_mode", "no_padding")}
    chosen = ", ".join(f"data.{name}={value}" for name, value in options.items())
    return f"{chosen}, with a conversation longer than data.max_length"


def _dataset(target: Target, name: str, settings: Settings) -> Boundary:
    defaults: Settings = {"option": "", "truncation": "error", "limit": 200, "pad_mode": "no_padding"}
    return one_call(
        path=f"{DATASET}.__getitem__",
        stage="batch",
        call=tokenized_differences,
        name="differ",
        arguments={
            "dataset": Constant(Function(DATASET)),
            "masks": EachRow(RowTokens("mask", "int")),
            **knobs("answer", "added"),
            **{knob: Knob(knob, default=value) for knob, value in defaults.items()},
        },
        remembered=True,
        fakes=present(target, _FAKES),
        produced_by={"masks": _ROWS},
        reads=frozenset({"mask", "length"}),
        outputs=difference_outputs(Use("differ")),
        settings={name: settings},
        claims=claims(_DOCS),
        reach=_reach(settings),
        requires=(no_empty_response,),
        domain=a_few_turns,
    )
