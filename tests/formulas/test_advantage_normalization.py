"""Normalizations of advantages inside a loss, by hand."""

import pytest
import torch

from rl_sentinel.core.batch import with_columns
from rl_sentinel.formulas.advantage_normalization import NORMALIZATIONS, normalized
from rl_sentinel.search.filled_batch import filled

_BATCH = filled([[1, 1], [1, 0]], reward=[1, 0], group=[0, 0], advantage=torch.tensor([[1.0, 1.0], [4.0, 4.0]]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("over trained tokens by deviation (n), offset 1e-08 beside", [-1 / 2**0.5, 2**0.5]),  # 1, 1, 4
        ("over trained tokens by deviation (n - 1), offset 1e-08 beside", [-1 / 3**0.5, 2 / 3**0.5]),
        ("over responses by deviation (n), offset 1e-08 within the root", [-1.0, 1.0]),  # 1, 4
        ("over responses by deviation (n - 1), offset 1e-08 beside", [-1 / 2**0.5, 1 / 2**0.5]),
    ],
)
def test_by_hand(name: str, expected: list[float]) -> None:
    assert name in NORMALIZATIONS
    batch = normalized(_BATCH, name)
    assert batch is not None
    assert batch.advantage[:, 0].tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("offset", ["1e-08", "1e-04"])
def test_equal_advantages_and_rows_with_several_are_not_determined(offset: str) -> None:
    equal = with_columns(_BATCH, advantage=torch.full((2, 2), 0.1))
    several = with_columns(_BATCH, advantage=torch.tensor([[1.0, 2.0], [4.0, 4.0]]))
    name = f"over responses by deviation (n), offset {offset} beside"
    assert normalized(equal, name) is None
    assert normalized(several, name) is None
