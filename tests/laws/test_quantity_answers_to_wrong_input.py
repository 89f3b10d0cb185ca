"""MET004: a sound, two broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.quantity_answers_to_wrong_input import LAW
from specimens import judged, specimen

KL = {"kl": Output("B T", "nats", "kl.k1")}
READS = "reward logprob ref_logprob mask"


def _kl(batch: Batch, kl_coef: float = 0.1) -> Tensor:
    kl = batch.logprob - batch.ref_logprob
    return kl if kl_coef else torch.zeros_like(kl)


def _shaped(batch: Batch, kl_coef: float = 0.1) -> Tensor:
    return batch.reward.unsqueeze(1) - kl_coef * _kl(batch)


def _weighed(batch: Batch, kl_coef: float = 0.1) -> Tensor:
    return kl_coef * _kl(batch)


def test_sound() -> None:
    """A log-ratio answers to log-probs only, and need not be computed at coefficient 0."""
    boundary = specimen(_kl, reads=READS, stage="kl", outputs=KL, settings={"default": {"kl_coef": 0.1}})
    judgement = judged(LAW, boundary)
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken_by_reward() -> None:
    found = judged(LAW, specimen(_shaped, reads=READS, stage="kl", outputs=KL)).found
    assert found is not None
    assert found.case.batch.mask.shape == (1, 1)
    assert found.expectation.sentence() == (
        "kl does not depend on reward, yet reward of row 0 moves kl at row 0, token 0 from 0 to 1"
    )
    assert found.distance == 1.0


def test_broken_by_a_difference_of_two() -> None:
    """Two wrong columns that are moved at once are not moved by the same, so that their difference moves too."""

    def paid(batch: Batch, kl_coef: float = 0.1) -> Tensor:
        return _kl(batch, kl_coef) + batch.reward.unsqueeze(1) - batch.value

    found = judged(LAW, specimen(paid, reads=f"{READS} value", stage="kl", outputs=KL)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "kl does not depend on reward, yet reward of row 0 moves kl at row 0, token 0 from 0 to 1"
    )


def test_broken_by_two_together() -> None:
    def both(batch: Batch, kl_coef: float = 0.1) -> Tensor:
        return _kl(batch, kl_coef) + ((batch.reward.unsqueeze(1) > 50) & (batch.value > 50)).float()

    found = judged(LAW, specimen(both, reads=f"{READS} value", stage="kl", outputs=KL)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "kl does not depend on reward or value, "
        "yet a change of reward and value of row 0 moves kl at row 0, token 0 from 0 to 1"
    )


def test_broken_where_all_at_once_are_refused() -> None:
    def wary(batch: Batch, kl_coef: float = 0.1) -> Tensor:
        if bool(((batch.reward.unsqueeze(1) - batch.value).abs() > 2).any()):
            message = "the value is too far from the reward"
            raise ValueError(message)
        return _kl(batch, kl_coef) + batch.reward.unsqueeze(1)

    found = judged(LAW, specimen(wary, reads=f"{READS} value", stage="kl", outputs=KL)).found
    assert found is not None
    assert "does not depend on reward, yet reward of row 0 moves" in found.expectation.sentence()


def test_broken_by_coefficient() -> None:
    """A KL that is weighed before it is exposed is found, though it reads nothing else."""
    settings = {"default": {"kl_coef": 0.1}}
    boundary = specimen(_weighed, reads="logprob ref_logprob mask", stage="kl", outputs=KL, settings=settings)
    found = judged(LAW, boundary).found
    assert found is not None
    assert found.expectation.sentence() == (
        "kl does not depend on kl_coef, "
        "yet setting kl_coef to 0.1 instead of 1 moves kl at row 0, token 0 from 1 to 0.1"
    )


def test_not_applicable() -> None:
    """A KL that reads nothing but log-probs has no wrong input."""
    judgement = judged(LAW, specimen(_kl, reads="logprob ref_logprob mask", stage="kl", outputs=KL))
    reason = "the boundary reads nothing that one of its logged quantities must not depend on"
    assert (judgement.tried, judgement.reason) == (0, reason)
