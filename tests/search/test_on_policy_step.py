"""The first step on fresh samples."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.search.on_policy_step import first_step, reinforce, row_constant
from specimens import specimen

BATCH = batch_of(
    torch.tensor([[True, True], [True, False], [False, False]]),
    advantage=torch.tensor([[0.5, -1.0], [2.0, 3.0], [4.0, 4.0]]),
    logprob=torch.full((3, 2), -0.5),
)


def _broken(gradient: Tensor, *, together: bool) -> list[str]:
    measured = [(e.name, e.measure()) for e in reinforce(BATCH, gradient, together=together)]
    return [key for key, m in measured if m is not None and m[0] > m[1]]


def test_first_step() -> None:
    """All policies are one, coefficients of a KL or an entropy are 0, other settings stay."""
    settings = {"default": {"kl_loss_coef": 0.1, "entropy_coeff": 0.2, "clip": 0.3}}
    boundary = specimen(lambda b, **_: b.advantage, reads="advantage", settings=settings)
    first = first_step(boundary, Case(BATCH, override={"mode": "a"}))
    assert first.override == {"mode": "a", "kl_loss_coef": 0.0, "entropy_coeff": 0.0}
    for name in ("old_logprob", "ref_logprob", "rollout_logprob"):
        assert torch.equal(getattr(first.batch, name), BATCH.logprob)


def test_row_constant() -> None:
    """The first advantage of a row holds for all of it; 1 where it is 0."""
    batch: Batch = batch_of(torch.ones(2, 2), advantage=torch.tensor([[0.5, -1.0], [0.0, 3.0]]))
    assert row_constant(batch).advantage.tolist() == [[0.5, 0.5], [1.0, 1.0]]


def test_reinforce() -> None:
    by_row = torch.tensor([[-1.0, 2.0], [-1.0, 0.0], [0.0, 0.0]])
    assert _broken(by_row, together=False) == []
    assert _broken(by_row, together=True) == ["gradient of logprob"]
    assert _broken(-BATCH.advantage, together=True) == []
    assert _broken(BATCH.advantage, together=True) == ["minus the gradient divided by the advantage"]
