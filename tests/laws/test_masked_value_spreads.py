"""MSK004: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.sequence_model import PolicyModel
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Step
from rl_sentinel.laws.masked_value_spreads import LAW
from specimens import judged, specimen

KL = {"kl": Output("B T", "nats", "kl.k1")}
LOSS = {"loss": Output("", "reward", "loss")}


def _difference(batch: Batch) -> Tensor:
    return torch.where(batch.mask, batch.logprob - batch.ref_logprob, 0.0)


def _less_the_mean(batch: Batch) -> Tensor:
    return batch.logprob - batch.logprob.mean(dim=1, keepdim=True)


def test_sound() -> None:
    """A difference of log-probs is selected, not summed over what is masked."""
    judgement = judged(LAW, specimen(_difference, reads="logprob ref_logprob mask", stage="kl", outputs=KL))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A mean over all positions is found; padding alone is enough."""
    found = judged(LAW, specimen(_less_the_mean, reads="logprob mask", stage="kl", outputs=KL)).found
    assert found is not None
    assert sorted(found.case.batch.mask.flatten().tolist()) == [False, True]
    assert found.expectation.sentence() == (
        "untrained positions must have no influence, "
        "yet -10000 in the log-probs there moves kl at row 0, token 0 from 0 to 5000"
    )
    assert LAW.level(found.case) == "fault"


def test_not_finite_is_found() -> None:
    def loss(batch: Batch) -> Tensor:
        return ((-batch.logprob).exp() * batch.mask).sum()

    found = judged(LAW, specimen(loss, reads="logprob mask", stage="policy-loss", outputs=LOSS)).found
    assert found is not None
    assert found.distance == float("inf")


def test_anything_may_stand_there() -> None:
    claims = {"masked-slots": "any"}

    def selected_late(batch: Batch) -> Tensor:
        return torch.where(batch.mask, (batch.logprob - batch.old_logprob).exp(), 0.0).sum()

    def refusing(batch: Batch) -> Tensor:
        if not bool(batch.reward.isfinite().all()):
            message = "reward is not finite"
            raise ValueError(message)
        return torch.where(batch.live, batch.reward, 0.0)

    reads = "logprob old_logprob mask"
    unclaimed = judged(LAW, specimen(selected_late, reads=reads, stage="policy-loss", outputs=LOSS))
    assert unclaimed.found is None
    assert unclaimed.tried > 0
    late = judged(LAW, specimen(selected_late, reads=reads, stage="policy-loss", outputs=LOSS, claims=claims)).found
    assert late is not None
    assert late.expectation.name == "gradient of logprob off the mask"
    rows = {"advantage": Output("B", "reward", "advantage")}
    strict = judged(LAW, specimen(refusing, reads="reward mask", outputs=rows, claims=claims)).found
    assert strict is not None
    assert strict.expectation.sentence() == (
        "refused, but must be accepted: NaN at untrained positions "
        "(masked positions may contain anything: ValueError: reward is not finite)"
    )


def test_not_applicable() -> None:
    """What makes its own log-probs has no slot for a fill."""
    judgement = judged(LAW, specimen(_difference, reads="logits logprob mask", stage="kl", outputs=KL))
    assert (judgement.tried, judgement.reason) == (0, "the boundary computes its log-probs from logits")


def test_log_probs_of_a_model_cannot_carry_a_fill() -> None:
    """At padding, a model gives the log-prob of another token, while the other policies' log-probs hold the fill."""
    step = Step(call=_difference, arguments={"model": PolicyModel(), "mask": Column("mask")})
    boundary = Boundary(path="", stage="policy-loss", steps=(step,), outputs=LOSS)
    judgement = judged(LAW, boundary)
    assert (judgement.tried, judgement.reason) == (0, "a model computes its log-probs")
