"""KLR001: sound, broken and refusing specimens."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.divergence_raises_reward import LAW
from specimens import judged, specimen

READS = "reward mask old_logprob ref_logprob"
SHAPED = {"token_reward": Output("B T", "reward", "token_reward")}
OUTCOME = {"reward": Output("B", "reward", "reward")}

ESTIMATORS = {
    "k1": lambda gap: gap,
    "abs": lambda gap: gap.abs(),
    "k2": lambda gap: gap**2 / 2,
    "k3": lambda gap: (-gap).exp() + gap - 1,
}


def _penalty(batch: Batch, kind: str, coefficient: float) -> Tensor:
    return coefficient * torch.where(batch.mask, ESTIMATORS[kind](batch.old_logprob - batch.ref_logprob), 0.0)


def _shaped(batch: Batch, kind: str = "k1", coefficient: float = 0.25) -> Tensor:
    at_last = torch.arange(batch.width) == batch.length.unsqueeze(1) - 1
    return torch.where(at_last, batch.reward.unsqueeze(1), 0.0) - _penalty(batch, kind, coefficient)


def test_sound() -> None:
    """Each estimator lowers the reward, per token or in the outcome; so does its return, also whitened."""
    for kind in ESTIMATORS:
        shaped = specimen(lambda batch, k=kind: _shaped(batch, k), reads=READS, stage="reward", outputs=SHAPED)
        outcome = specimen(
            lambda batch, k=kind: batch.reward - _penalty(batch, k, 0.25).sum(1),
            reads=READS,
            stage="reward",
            outputs=OUTCOME,
        )
        for boundary in (shaped, outcome, specimen(_whitened, reads=READS)):
            judgement = judged(LAW, boundary)
            assert judgement.found is None
            assert judgement.tried > 0


def _whitened(batch: Batch, sign: float = 1.0) -> Tensor:
    returns = _shaped(batch, coefficient=0.25 * sign).flip(1).cumsum(1).flip(1)
    trained = returns[batch.mask]
    return torch.where(batch.mask, (returns - trained.mean()) / (trained.std(correction=0) + 1e-6), 0.0)


def test_whitened_values_of_untrained_tokens_are_not_judged() -> None:
    """Alone, a trained token has the whitened value 0; an untrained one behind it then holds the whole difference."""

    def whitened_everywhere(batch: Batch) -> Tensor:
        returns = _shaped(batch).flip(1).cumsum(1).flip(1)
        trained = returns[batch.mask]
        return (returns - trained.mean()) / (trained.std(correction=0) + 1e-6)

    judgement = judged(LAW, specimen(whitened_everywhere, reads=READS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """An added penalty is found with one token, and says by how much the reference fell."""
    found = judged(
        LAW, specimen(lambda b: _shaped(b, coefficient=-0.25), reads=READS, stage="reward", outputs=SHAPED)
    ).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]]
    assert found.expectation.sentence() == (
        "token_reward is 0 at row 0, token 0, expected at least 0.125: in the other call the reference's "
        "log-prob of token 0 of row 0 is lower by 0.5 nats, and a larger divergence must not raise it"
    )
    assert LAW.level(found.case) == "fault"


def test_broken_elsewhere() -> None:
    """It is found in an outcome, in a whitened return, and for a ratio that is upside down."""

    def upside_down(batch: Batch) -> Tensor:
        return batch.reward - 0.25 * torch.where(batch.mask, batch.ref_logprob - batch.old_logprob, 0.0).sum(1)

    outcome = specimen(upside_down, reads=READS, stage="reward", outputs=OUTCOME)
    assert judged(LAW, outcome).found is not None
    assert judged(LAW, specimen(lambda b: _whitened(b, -1.0), reads=READS)).found is not None


def test_not_applicable() -> None:
    """Nothing is compared without a reference or a reward, nor under a coefficient of 0."""
    alone = specimen(_shaped, reads="reward mask old_logprob", stage="reward", outputs=SHAPED)
    assert (judged(LAW, alone).tried, judged(LAW, alone).reason) == (
        0,
        "the boundary does not read log-probs of both a policy and a reference",
    )
    kl = specimen(_shaped, reads=READS, stage="kl", outputs={"kl": Output("B T", "nats", "kl.k1")})
    assert (judged(LAW, kl).tried, judged(LAW, kl).reason) == (0, "the boundary returns no reward and no advantage")
    unweighted = specimen(lambda b: _shaped(b, coefficient=0.0), reads=READS, stage="reward", outputs=SHAPED)
    assert judged(LAW, unweighted).tried == 0


def test_refusing() -> None:
    """A boundary that refuses every batch is not judged."""

    def refuses(batch: Batch) -> Tensor:
        raise ValueError(f"{batch.rows} rows")

    assert judged(LAW, specimen(refuses, reads=READS, stage="reward", outputs=SHAPED)).tried == 0
