"""Numbers of the logits of trained tokens, against numbers worked out by hand."""

from math import log

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.token_metrics import TOKEN_METRICS

#: A trained token of even chances in row 0; in row 1 one whose first word has half of them. Others are not trained.
BATCH = batch_of(
    torch.tensor([[1, 0], [1, 0]]).bool(),
    logits=torch.tensor([[[1.0, 1.0, 1.0], [9.0, 0.0, 0.0]], [[2 * log(2), log(2), log(2)], [0.0, 9.0, 0.0]]]),
    token=torch.tensor([[0, 0], [0, 1]]),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("entropy of trained tokens", (log(3) + 1.5 * log(2)) / 2),
        ("mean logit of preferred responses", 1.0),
        ("mean logit of other responses", 4 * log(2) / 3),
    ],
)
def test_numbers(name: str, expected: float) -> None:
    """Only trained tokens count."""
    assert TOKEN_METRICS[name](BATCH, {}).item() == pytest.approx(expected)


def test_accuracy() -> None:
    """The most likely words of both trained tokens are theirs, and of the first one by a tie, which says nothing."""
    accuracy = TOKEN_METRICS["accuracy of trained tokens"]
    assert accuracy(BATCH, {}).isnan()
    other = batch_of(torch.tensor([[1, 1]]).bool(), logits=BATCH.logits[1:], token=torch.tensor([[0, 0]]))
    assert accuracy(other, {}).item() == 0.5
    assert TOKEN_METRICS["accuracy of preferred responses"](BATCH, {}).isnan()
    pair = batch_of(torch.tensor([[1, 1], [1, 0]]).bool(), logits=BATCH.logits.flip(0), token=torch.zeros(2, 2).long())
    assert TOKEN_METRICS["accuracy of preferred responses"](pair, {}).item() == 0.5


def test_rows_that_are_no_pairs() -> None:
    """A side of pairs is not defined for an odd number of rows."""
    one = batch_of(torch.ones(1, 1).bool())
    assert TOKEN_METRICS["mean logit of other responses"](one, {}).isnan()
