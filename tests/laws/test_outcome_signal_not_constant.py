"""PLC003: a sound, a broken and a refusing specimen."""

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.outcome_signal_not_constant import LAW
from specimens import judged, specimen

CLAIMS = {"credit": "outcome"}


def _constant(batch: Batch) -> Tensor:
    penalty = ((batch.logprob - batch.ref_logprob) * batch.mask).cumsum(dim=1)
    return (batch.reward.unsqueeze(1) - penalty) * batch.mask


def _by_position(batch: Batch) -> Tensor:
    return batch.reward.unsqueeze(1) * batch.mask / batch.mask.cumsum(dim=1).clamp(min=1)


def test_sound() -> None:
    """One value per row holds, also where a KL term would part the tokens by right."""
    judgement = judged(LAW, specimen(_constant, reads="reward mask logprob ref_logprob", claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A reward that is divided by the position is found, with one row of two tokens."""
    found = judged(LAW, specimen(_by_position, reads="reward mask", claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True, True]]
    assert found.expectation.sentence() == (
        "advantage is 0.5 at row 0, token 1, expected 1: all trained tokens of a row must have the same value, that of "
        "the first"
    )
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """Credit over time differs from token to token."""
    judgement = judged(LAW, specimen(_by_position, reads="reward mask", claims={"credit": "temporal"}))
    reason = "the boundary does not claim that the outcome credits the whole response"
    assert (judgement.tried, judgement.reason) == (0, reason)
