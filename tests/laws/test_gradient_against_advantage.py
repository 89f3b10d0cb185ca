"""GRD002: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.gradient_against_advantage import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "", "loss")}
READS = "logprob old_logprob advantage mask"
RATIO = {"ratio": "yes"}


def _sound(batch: Batch) -> Tensor:
    ratio = torch.where(batch.mask, batch.logprob - batch.old_logprob, 0.0).exp()
    return -torch.where(batch.mask, ratio * batch.advantage, 0.0).sum()


def _unsigned(batch: Batch) -> Tensor:
    ratio = torch.where(batch.mask, batch.logprob - batch.old_logprob, 0.0).exp()
    return -torch.where(batch.mask, ratio * batch.advantage.abs(), 0.0).sum()


def test_sound() -> None:
    """A ratio times its advantage pushes the right way."""
    judgement = judged(LAW, specimen(_sound, reads=READS, stage="policy-loss", outputs=LOSS, claims=RATIO))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A loss without the advantage's sign raises what was punished."""
    found = judged(LAW, specimen(_unsigned, reads=READS, stage="policy-loss", outputs=LOSS, claims=RATIO)).found
    assert found is not None
    assert found.case.batch.mask.shape == (1, 1)
    assert found.expectation.sentence() == (
        "gradient of logprob is -1 at row 0, token 0, expected at least 0: "
        "row 0 has the advantage -1, so a step must lower its log-probs"
    )


def test_not_applicable() -> None:
    """A loss that claims no ratio is not judged."""
    judgement = judged(LAW, specimen(_sound, reads=READS, stage="policy-loss", outputs=LOSS))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims no ratio of two policies")
