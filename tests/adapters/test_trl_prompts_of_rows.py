"""Prompts of TRL's cases: a row keeps the length of its prompt at any place of a batch or of a micro-batch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rl_sentinel.adapters.trl.distillation_codecs import prompt_lengths
from rl_sentinel.adapters.trl.kto import LabeledFeatures
from rl_sentinel.adapters.trl.pair_codecs import PairFeatures, TripleFeatures
from rl_sentinel.adapters.trl.pair_sampling_fakes import prompt_text
from rl_sentinel.adapters.trl.supervised import Examples
from rl_sentinel.core.batch import Batch, batch_of, take_rows
from rl_sentinel.core.codec import Inputs

MASK = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]]).bool()
BATCH = batch_of(MASK, length=MASK.sum(1))


def _of_features(codec: PairFeatures, name: str) -> Callable[[Batch], list[int]]:
    def lengths(batch: Batch) -> list[int]:
        features: list[dict[str, Any]] = codec.put(Inputs(batch))
        return [len(one[name]) for one in features]

    return lengths


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        (_of_features(PairFeatures(), "prompt_ids"), 2),
        (_of_features(PairFeatures(whole=True), "prompt_input_ids"), 2),
        (_of_features(TripleFeatures(), "prompt_ids"), 2),
        (_of_features(LabeledFeatures(), "prompt_ids"), 1),
        (_of_features(Examples(), "prompt"), 1),
        (prompt_lengths, 1),
    ],
)
def test_a_row_keeps_its_prompt(lengths: Callable[[Batch], list[int]], rows: int) -> None:
    """Lengths differ within the batch; they move with the rows, and stay in each part of the batch."""
    found = lengths(BATCH)
    assert len(found) == len(MASK) // rows
    assert set(found) == {1, 2}
    for shift in range(1, len(found)):
        moved = [*range(shift * rows, len(MASK)), *range(shift * rows)]
        assert lengths(take_rows(BATCH, torch.tensor(moved))) == found[shift:] + found[:shift]
        parts = (torch.arange(shift * rows), torch.arange(shift * rows, len(MASK)))
        assert [n for part in parts for n in lengths(take_rows(BATCH, part))] == found


def test_all_prompts_start_alike() -> None:
    """What a trainer looks for in a prompt is in each one, so that it does not depend on the place of a row."""
    assert [prompt_text(number, "<eos>") for number in range(2)] == ["<eos> w0", "<eos> w1"]
    assert [len(prompt_text(number).split()) for number in range(2)] == [2, 1]
