"""A fake data set of prompts for verl's trainers, with the data loaders that a trainer makes of it."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.source_reads import remembered


class NumberedPrompts(torch.utils.data.Dataset[dict[str, Any]]):
    """A data set of numbered prompts, with the columns of the target's data set."""

    def __init__(self, count: int, *, tokenized: bool, sources: Sequence[str] = ("task",)) -> None:
        """Set the number of prompts, whether the release's data set tokenizes them, and a source for each prompt.

        The last source also applies to all further prompts.
        """
        self.count, self.tokenized, self.sources = count, tokenized, sources
        self.truncation = "error"  # the default of verl, with which trainers of early 2025 compare it

    def __len__(self) -> int:
        """The number of prompts."""
        return self.count

    def __getitem__(self, number: int) -> dict[str, Any]:
        """A prompt: its number is its only token, and its text."""
        one = torch.ones(1, dtype=torch.int64)
        tensors = {"dummy_tensor": one}
        if self.tokenized:
            tensors = {"input_ids": one * number, "attention_mask": one, "position_ids": one - 1}
        return {
            **tensors,
            "raw_prompt_ids": [number],
            "raw_prompt": [{"role": "user", "content": str(number)}],
            "index": number,
            "data_source": self.sources[min(number, len(self.sources) - 1)],
            "reward_model": {"ground_truth": "", "style": "rule"},
            "extra_info": {},
        }


def collect(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Stack the rows to tensors and arrays of objects, as the target's ``collate_fn`` does."""
    columns: dict[str, Any] = {}
    for name, first in rows[0].items():
        values = [row[name] for row in rows]
        if isinstance(first, Tensor):
            columns[name] = torch.stack(values)
        else:
            columns[name] = np.empty(len(values), dtype=object)
            columns[name][:] = values
    return columns


class Columns:
    """A fake of pandas, with which verl before August 2025 compares two columns of objects."""

    class DataFrame:
        """A fake table of one column."""

        def __init__(self, values: Sequence[Any]) -> None:
            """Store the values."""
            self.values = list(values)

        def equals(self, other: "Columns.DataFrame") -> bool:
            """Whether the other table has the same values."""
            return self.values == other.values


def data_set_tokenizes() -> bool:
    """Whether the release's data set of prompts returns their tokens."""
    dataset = importlib.import_module("verl.utils.dataset.rl_dataset").RLHFDataset
    return "dummy_tensor" not in source_of(dataset)


def create_loaders(trainer: Any, dataset: NumberedPrompts) -> None:  # noqa: ANN401 - of the target
    """Let the trainer make its loaders; until April 2025 it makes the data sets, too."""
    create = inspect.unwrap(type(trainer)._create_dataloader)  # noqa: SLF001 - the trainer's own
    if "train_dataset" in inspect.signature(create).parameters:
        create(trainer, dataset, dataset, collect, None)
        return
    with replaced_globals(create.__globals__, RLHFDataset=lambda **_about: dataset, collate_fn=collect):
        create(trainer)


@remembered
def source_of(thing: Callable[..., Any]) -> str:
    """The source of a function or class; cached, because ``getsource`` is slow."""
    return inspect.getsource(thing)
