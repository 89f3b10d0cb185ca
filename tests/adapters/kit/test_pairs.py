"""Pairs of responses: what is required of a batch, and how a batch is made to fit."""

import pytest
import torch

from rl_sentinel.adapters.kit.pairs import even_rows, rows_are_pairs, trained_pairs, trained_rows
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.layout import Layout

THREE = batch_of(torch.tensor([[True, True], [False, False], [True, False]]), length=torch.tensor([2, 1, 1]))


@pytest.mark.parametrize(("rows", "parts", "fits"), [(2, 1, True), (3, 1, False), (2, 2, False), (4, 2, True)])
def test_every_micro_batch_has_whole_pairs(rows: int, parts: int, fits: bool) -> None:
    inputs = Inputs(batch_of(torch.ones(rows, 1).bool()), {}, Layout(micro_batches=parts))
    assert (rows_are_pairs(inputs) == "") is fits


def test_the_last_row_of_an_odd_number_is_dropped() -> None:
    assert even_rows(THREE).mask.tolist() == [[True, True], [False, False]]
    assert even_rows(batch_of(torch.ones(1, 1).bool())).rows == 1


def test_a_row_without_a_trained_token_trains_its_response() -> None:
    assert trained_rows(THREE).mask.tolist() == [[True, True], [True, False], [True, False]]
    assert trained_pairs(THREE).mask.tolist() == [[True, True], [True, False]]
