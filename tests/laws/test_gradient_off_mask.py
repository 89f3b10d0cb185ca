"""PLC002: a sound, a broken and a refusing specimen."""

from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.gradient_off_mask import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "", "loss")}
READS = "logprob advantage mask"


def _masked(batch: Batch) -> Tensor:
    return -torch.where(batch.mask, batch.logprob * batch.advantage, 0.0).sum() / batch.mask.sum().clamp(min=1)


def _unmasked(batch: Batch) -> Tensor:
    return -(batch.logprob * batch.advantage).sum() / batch.mask.sum().clamp(min=1)


def test_sound() -> None:
    """Tokens that are selected away have no gradient."""
    judgement = judged(LAW, specimen(_masked, reads=READS, stage="policy-loss", outputs=LOSS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A sum over all tokens is found, with one that is trained and one that is not."""
    found = judged(LAW, specimen(_unmasked, reads=READS, stage="policy-loss", outputs=LOSS)).found
    assert found is not None
    assert int(found.case.batch.mask.sum()) == 1
    assert found.case.batch.mask.numel() == 2
    assert found.expectation.sentence() == (
        "gradient of logprob is -1 at row 0, token 1, expected 0: this token is not trained"
    )


def test_value_loss() -> None:
    def loss(batch: Batch) -> Tensor:
        return (batch.value - batch.returns).square().mean()

    found = judged(LAW, specimen(loss, reads="value returns mask", stage="value-loss", outputs=LOSS)).found
    assert found is not None
    assert found.expectation.name == "gradient of value"


def test_a_row_without_a_trained_token_is_not_judged_at_functions_whose_callers_are_unknown() -> None:
    """Its mean is 0 / 0, which DEG001 reports; a finite gradient is judged all the same."""

    def per_row(batch: Batch) -> Tensor:
        return ((batch.logprob * batch.mask).sum(1) / batch.mask.sum(1)).mean()

    per_row_loss = specimen(per_row, reads="logprob mask", stage="policy-loss", outputs=LOSS)
    assert judged(LAW, per_row_loss).found is not None
    assert judged(LAW, replace(per_row_loss, own=True)).found is None
    unmasked = specimen(_unmasked, reads=READS, stage="policy-loss", outputs=LOSS)
    assert judged(LAW, replace(unmasked, own=True)).found is not None


def test_claimed_masked() -> None:
    """Outputs per token and per row that are claimed to be masked are 0 where nothing is trained."""
    rows = {"advantage": Output("B", "reward", "advantage")}
    claims = {"masked": "yes"}
    sound = judged(LAW, specimen(lambda b: b.reward * b.live, reads="reward mask", outputs=rows, claims=claims))
    assert sound.found is None
    assert sound.tried > 0
    found = judged(LAW, specimen(lambda b: b.reward, reads="reward mask", outputs=rows, claims=claims)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "advantage is 1 at row 1, expected 0: it is claimed to be 0 at untrained positions"
    )
    tokens = judged(LAW, specimen(lambda b: b.advantage, reads="advantage mask", claims=claims)).found
    assert tokens is not None
    assert tokens.expectation.name == "advantage"


def test_not_applicable() -> None:
    """Without a loss there is no gradient."""
    judgement = judged(LAW, specimen(_masked, reads=READS, stage="policy-loss"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary has no gradient, and claims no masked output")
