"""The fake of the model for TRL's losses that sample."""

import torch

from rl_sentinel.adapters.trl.early_losses import WITH_PADDING, KnownModel


def test_a_row_that_attends_to_padding() -> None:
    """The first prompt starts with padding: without an attention mask, and with one of ones, its log-probs differ."""
    logprobs = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    model = KnownModel(logprobs, [[5, 1], [5, 1]])
    ids = torch.tensor([[0, 4, 5, 1], [4, 4, 5, 1]])
    for mask, factor in (((ids != 0).int(), 1.0), (None, WITH_PADDING), (torch.ones_like(ids), WITH_PADDING)):
        logits = model(ids, attention_mask=mask, logits_to_keep=3).logits
        assert logits.shape[:2] == (2, 3)
        assert torch.equal(logits[0, :-1, 0], factor * logprobs[0])
        assert torch.equal(logits[1, :-1, 0], logprobs[1])


def test_padding_after_the_end_has_no_effect() -> None:
    """A causal model does not see later tokens."""
    model = KnownModel(torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]), [[1], [5, 1]])
    ids = torch.tensor([[4, 1, 0], [4, 5, 1]])
    assert model(ids).logits[:, :-1, 0].tolist() == [[-1.0, -2.0], [-3.0, -4.0]]
