"""GRD003: a sound, a broken and a refusing specimen."""

from functools import partial

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.infinite_gradient_applied import LAW
from specimens import judged, specimen

make = partial(specimen, reads="reward", stage="step", outputs={"changed": Output("B", "count", "changed_by_overflow")})


def _changed(batch: Batch, *, checked: bool) -> Tensor:
    """The number of weights that differ from 0 after an update in which one gradient after another is infinite."""
    counts = []
    for row in range(batch.rows):
        weights = torch.zeros(batch.rows, requires_grad=True)
        weights.grad = batch.reward.clone().index_fill_(0, torch.tensor([row]), float("inf"))
        norm = torch.nn.utils.clip_grad_norm_([weights], 1.0)
        if not checked or bool(norm.isfinite()):
            torch.optim.SGD([weights], lr=1.0).step()
        counts.append(float((weights.detach() != 0).sum()))
    return torch.tensor(counts)


def test_sound() -> None:
    """The norm is read before the optimizer's step."""
    judgement = judged(LAW, make(partial(_changed, checked=True)))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """The gradient is clipped by an infinite norm, and applied."""
    found = judged(LAW, make(partial(_changed, checked=False))).found
    assert found is not None
    wanted = "changed is 1 at row 0, expected 0: an update whose gradient is not finite must be skipped"
    assert found.expectation.sentence() == wanted
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A boundary without the output takes no optimizer step."""
    boundary = specimen(partial(_changed, checked=True), reads="reward", stage="step", outputs={"x": Output("B")})
    judgement = judged(LAW, boundary)
    assert judgement.tried == 0
    assert judgement.reason == "the boundary does not report what a gradient that is not finite changes"
