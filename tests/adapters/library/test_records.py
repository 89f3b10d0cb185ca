"""The record that the path hands on: cut and put together, nothing is lost or moved, padded or packed."""

import pytest
import torch

from adapters.library_specimen import outputs_of
from rl_sentinel.core.batch import batch_of

#: Rows of two prompts between each other, of 2, 1 and 2 tokens.
BATCH = batch_of(
    torch.tensor([[True, False], [True, False], [True, True]]),
    length=torch.tensor([2, 1, 2]),
    group=torch.tensor([4, 1, 4]),
    reward=torch.tensor([2.0, 3.0, 5.0]),
    advantage=torch.tensor([[1.0, 2.0], [3.0, 0.0], [5.0, 6.0]]),
    logprob=torch.tensor([[-1.0, -2.0], [-3.0, 0.0], [-5.0, -6.0]]),
    value=torch.tensor([[0.1, 0.2], [0.3, 0.0], [0.5, 0.6]]),
    returns=torch.tensor([[7.0, 8.0], [9.0, 0.0], [10.0, 11.0]]),
)


@pytest.mark.parametrize("stored", ["padded", "packed"])
def test_each_column_comes_back(stored: str) -> None:
    outputs = outputs_of("prompts_apart", f"{stored}, one prompt each", BATCH)
    columns = {"advantage": "advantage", "kl": "logprob", "weight": "value", "returns": "returns", "trained": "mask"}
    for field, column in {**columns, "reward": "reward"}.items():
        assert outputs[field].tolist() == getattr(BATCH, column).tolist(), field


@pytest.mark.parametrize("how", ["weighed", "as it is"])
@pytest.mark.parametrize("stored", ["padded", "packed"])
def test_an_outcome_stands_on_its_trained_tokens(stored: str, how: str) -> None:
    """Twice the outcome by half a weight is the outcome; off the mask it is exactly 0."""
    outputs = outputs_of("token_advantage", f"{stored}, {how}", BATCH)
    assert outputs["advantage"].tolist() == [[2.0, 0.0], [3.0, 0.0], [5.0, 5.0]]
