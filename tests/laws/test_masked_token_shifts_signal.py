"""MSK002: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.masked_token_shifts_signal import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "reward", "loss")}
READS = "logprob old_logprob advantage mask"


def _loss(batch: Batch) -> Tensor:
    ratio = torch.where(batch.mask, batch.logprob - batch.old_logprob, 0.0).exp()
    return -(ratio * batch.advantage * batch.mask).sum() / batch.mask.sum().clamp(min=1)


def _loss_over_ratio_of_all(batch: Batch) -> Tensor:
    ratio = (batch.logprob - batch.old_logprob).mean(dim=1, keepdim=True).exp()
    return -(ratio * batch.advantage * batch.mask).sum() / batch.mask.sum().clamp(min=1)


def _multiplied(batch: Batch) -> Tensor:
    """A ratio that overflows where the mask hides it: MSK004's subject."""
    ratio = (batch.logprob - batch.old_logprob).exp()
    return -(ratio * batch.advantage * batch.mask).sum() / batch.mask.sum().clamp(min=1)


def test_sound() -> None:
    """A loss over trained tokens is left alone by the others, and overflow is another law's."""
    for compute in (_loss, _multiplied):
        judgement = judged(LAW, specimen(compute, reads=READS, stage="policy-loss", outputs=LOSS))
        assert judgement.found is None
        assert judgement.tried > 0


def test_broken() -> None:
    """A sequence ratio over all tokens is found, with one trained token and one that is not."""
    boundary = specimen(_loss_over_ratio_of_all, reads=READS, stage="policy-loss", outputs=LOSS)
    found = judged(LAW, boundary).found
    assert found is not None
    assert sorted(found.case.batch.mask.flatten().tolist()) == [False, True]
    assert found.expectation.name == "loss"
    sentence = found.expectation.sentence()  # a mean of 0 and -1 gives a ratio of exp(-1 / 2)
    assert sentence == "token 1 of row 0 is not trained, yet its logprob moves loss from -1 to -0.6065"
    assert LAW.level(found.case) == "fault"


def test_gradient_is_compared() -> None:
    def loss(batch: Batch) -> Tensor:
        ratio = (batch.logprob - batch.logprob.detach()) * batch.old_logprob.sum(dim=1, keepdim=True)
        return (ratio * batch.mask).sum()

    found = judged(LAW, specimen(loss, reads=READS, stage="policy-loss", outputs=LOSS)).found
    assert found is not None
    assert found.expectation.name == "gradient of logprob"


def test_not_applicable() -> None:
    """What reads neither log-probs, values nor advantages has nothing to move."""
    judgement = judged(LAW, specimen(lambda b: b.reward.unsqueeze(1) * b.mask, reads="reward mask"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary reads neither log-probs, values nor advantages")
