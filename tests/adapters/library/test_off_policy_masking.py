"""Off-policy sequence masking with an advantage per token, on numbers worked out by hand."""

import torch

from adapters.library_specimen import outputs_of
from rl_sentinel.core.batch import batch_of


def test_rows_that_the_policy_moved_away_from_are_masked() -> None:
    """Only a row that lost probability and has a negative advantage; the last token of row 3 is not trained."""
    batch = batch_of(
        torch.tensor([[True, True], [True, True], [True, True], [True, False]]),
        reward=torch.tensor([1.0, 0.0, 4.0, 2.0]),
        group=torch.tensor([3, 3, 8, 8]),
        old_logprob=torch.full((4, 2), -1.0),
        logprob=torch.tensor([[-1.0, -1.0], [-2.0, -2.0], [-2.0, -2.0], [-1.0, -1.0]]),
        advantage=torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]),
    )
    outputs = outputs_of("trusted", "default", batch)
    assert outputs["keep"].tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]
    assert outputs["rejected"].item() == 0.25
