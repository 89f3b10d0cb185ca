"""Pairs of responses: sums of log-probs, and the weight of tokens beyond the shorter response."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.preference_pairs import are_pairs, mismatched_kl, pairs_of

#: Two trained tokens against one.
PAIR = batch_of(
    torch.tensor([[1, 1], [1, 0]]).bool(),
    logprob=torch.tensor([[-1.0, -2.0], [-3.0, 9.0]]),
    ref_logprob=torch.tensor([[-1.5, -1.5], [-2.0, 9.0]]),
)


@pytest.mark.parametrize(
    ("settings", "desensitized", "chosen", "ref_chosen"),
    [({}, True, -3.0, -3.0), ({"tail_weight": 0.5}, True, -2.0, -2.25), ({"tail_weight": 0.5}, False, -2.0, -3.0)],
)
def test_sums(settings: Settings, chosen: float, ref_chosen: float, *, desensitized: bool) -> None:
    """The second token of the longer response is its tail; untrained tokens never count."""
    pairs = pairs_of(PAIR, settings, desensitized=desensitized)
    assert (pairs.chosen.item(), pairs.ref_chosen.item()) == (chosen, ref_chosen)
    assert (pairs.rejected.item(), pairs.ref_rejected.item()) == (-3.0, -2.0)
    assert pairs.rejected_ratio.item() == -1.0


def test_uniform_reference() -> None:
    assert pairs_of(PAIR, {}, reference=False).chosen_ratio.item() == -3.0


def test_every_row_of_a_pair_is_trained() -> None:
    assert are_pairs(PAIR)
    assert not are_pairs(batch_of(torch.ones(3, 1).bool()))
    assert not are_pairs(batch_of(torch.tensor([[True], [False]])))


def test_mismatched_kl_is_not_negative() -> None:
    """The mean of 0 and -1 is below 0; of 1 and 0, swapped policies, it is a half."""
    assert mismatched_kl(pairs_of(PAIR, {})).item() == 0.0
    swapped = batch_of(PAIR.mask, logprob=PAIR.ref_logprob, ref_logprob=PAIR.logprob)
    assert mismatched_kl(pairs_of(swapped, {})).item() == 0.5
