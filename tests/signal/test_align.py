"""Alignment, by hand."""

import pytest
import torch

from rl_sentinel.signal.align import at_last, response_aligned, spread

SEQUENCE = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
PROMPT, LENGTH = torch.tensor([1, 2]), torch.tensor([3, 1])
MASK = torch.tensor([[True, False, True, False], [False, True, False, False], [False] * 4])


@pytest.mark.parametrize(
    ("predicts_next", "expected"),
    [(True, [[1.0, 2.0, 3.0], [6.0, 0.0, 0.0]]), (False, [[2.0, 3.0, 4.0], [7.0, 0.0, 0.0]])],
)
def test_response_aligned(predicts_next: bool, expected: list[list[float]]) -> None:
    found = response_aligned(SEQUENCE, prompt_length=PROMPT, length=LENGTH, width=3, predicts_next=predicts_next)
    assert found.tolist() == expected


def test_response_outside_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"response\[0\] spans positions 3 to 6 \(prompt_length 3, length 3\), expected 0 to 3 tokens ",
    ):
        response_aligned(SEQUENCE, prompt_length=PROMPT + 2, length=LENGTH, width=3, predicts_next=False)
    with pytest.raises(ValueError, match=r"response\[0\] spans positions -1 to 2"):
        response_aligned(SEQUENCE, prompt_length=PROMPT - 1, length=LENGTH, width=3, predicts_next=True)


def test_spread_and_last() -> None:
    row = torch.tensor([2.0, 3.0, torch.nan])
    zeros = [0.0] * 4
    assert spread(row, mask=MASK).tolist() == [[2.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 0.0], zeros]
    assert at_last(row, mask=MASK).tolist() == [[0.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 0.0], zeros]
