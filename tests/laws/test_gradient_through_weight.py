"""GRD001: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.gradient_through_weight import LAW
from specimens import judged, specimen

OUTPUTS = {
    "loss": Output("", "", "loss"),
    "weight": Output("B T", "ratio", "weight"),
    "weight_requires_grad": Output("", "", "requires_grad"),
}
READS = "logprob rollout_logprob advantage mask"
CONSTANT = {"weights": "constant"}


def _answer(batch: Batch, weight: Tensor) -> dict[str, Tensor]:
    gain = torch.where(batch.mask, weight * batch.logprob * batch.advantage, 0.0)
    return {"loss": -gain.sum(), "weight": weight, "weight_requires_grad": torch.tensor(float(weight.requires_grad))}


def _detached(batch: Batch) -> dict[str, Tensor]:
    return _answer(batch, (batch.logprob.detach() - batch.rollout_logprob).exp())


def _attached(batch: Batch) -> dict[str, Tensor]:
    return _answer(batch, (batch.logprob - batch.rollout_logprob).exp())


def test_sound() -> None:
    """A detached weight requires no gradient."""
    boundary = specimen(_detached, reads=READS, stage="policy-loss", outputs=OUTPUTS, claims=CONSTANT)
    judgement = judged(LAW, boundary)
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A weight that is left attached is found."""
    boundary = specimen(_attached, reads=READS, stage="policy-loss", outputs=OUTPUTS, claims=CONSTANT)
    found = judged(LAW, boundary).found
    assert found is not None
    assert found.expectation.sentence() == "weight is claimed to be constant, yet it requires a gradient"


def test_not_applicable() -> None:
    """A weight that is not claimed constant may be differentiated."""
    judgement = judged(LAW, specimen(_attached, reads=READS, stage="policy-loss", outputs=OUTPUTS))
    assert (judgement.tried, judgement.reason) == (0, "the boundary does not claim constant weights")
