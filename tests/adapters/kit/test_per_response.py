"""Token columns as one number per response, on values written by hand."""

import torch

from adapters.kit.by_hand import BATCH, SIZES
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.per_response import PerResponse, PerResponseOfPrompt
from rl_sentinel.adapters.kit.wrapped_forms import OnePrompt
from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.codec import Inputs

#: The first trained tokens are the second of the first row, and the first of the second row.
ADVANTAGES = with_columns(
    BATCH,
    mask=torch.tensor([[False, True, True], [True, False, False]]),
    advantage=torch.tensor([[9.0, 1.5, 2.5], [-2.0, 8.0, 8.0]]),
)
FIRST = [1.5, -2.0]


def test_the_value_of_a_row_is_that_of_its_first_trained_token() -> None:
    assert PerResponse().put(Inputs(ADVANTAGES)).tolist() == FIRST
    assert PerResponse(listed=True).put(Inputs(ADVANTAGES)) == FIRST


def test_more_axes_have_size_one() -> None:
    assert PerResponse(dims=1).put(Inputs(ADVANTAGES)).shape == (2, 1)
    assert PerResponse(dims=2).put(Inputs(ADVANTAGES)).shape == (2, 1, 1)


def test_the_responses_of_a_group_are_a_row() -> None:
    codec = PerResponse(grouped=True)
    one_group = with_columns(ADVANTAGES, group=torch.zeros(2, dtype=torch.long))
    assert codec.shapes == {"group"}
    assert codec.put(Inputs(one_group)).tolist() == [FIRST]


def test_a_column_is_read_from_the_numbers_of_its_rows() -> None:
    for codec, value in (
        (PerResponse(), torch.tensor([1.0, -2.0])),
        (PerResponse(dims=1), torch.tensor([[1.0], [-2.0]])),
        (PerResponse(listed=True), [1.0, -2.0]),
    ):
        assert codec.sizes(value).rows == 2
        assert codec.take(value, SIZES)["advantage"].tolist() == [[1.0] * 3, [-2.0] * 3]
    assert PerResponse().take(torch.ones(2), PerResponse().sizes(torch.ones(2))) == {}


def test_the_canonical_column_repeats_the_number_of_each_row() -> None:
    assert PerResponse().canonical(ADVANTAGES)["advantage"].tolist() == [[1.5] * 3, [-2.0] * 3]


def test_a_function_that_is_called_per_prompt_has_the_layout_of_one_prompt() -> None:
    """That layout tells the adapter to call the function once per prompt."""
    assert PerResponseOfPrompt().form == OnePrompt(PerRow("tensor"))
    assert PerResponseOfPrompt(listed=True).form == OnePrompt(PerRow("list"))
