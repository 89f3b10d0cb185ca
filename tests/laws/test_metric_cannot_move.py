"""MET002: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.metric_cannot_move import LAW
from rl_sentinel.search.companion_cases import companion_pool
from specimens import judged, specimen

CLIP = {"clip": Output("", "", "clip_fraction")}
READS = "logprob old_logprob mask"


def _fraction(logprob: Tensor, old_logprob: Tensor, mask: Tensor) -> Tensor:
    outside = ((logprob - old_logprob).exp() - 1).abs() > 0.2
    return outside[mask].sum() / mask.sum().clamp(min=1)


def test_sound() -> None:
    """A clip fraction moves on some case, though not on each."""

    def sound(batch: Batch) -> Tensor:
        return _fraction(batch.logprob, batch.old_logprob, batch.mask)

    judgement = judged(LAW, specimen(sound, reads=READS, stage="metric", outputs=CLIP))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A clip fraction of a policy against itself is 0 on all cases; its neighbor is not blamed."""

    def broken(batch: Batch) -> dict[str, Tensor]:
        stale = _fraction(batch.logprob, batch.logprob.detach(), batch.mask)
        return {"length": batch.length.float().mean(), "clip": stale.float()}

    outputs = {"length": Output("", "tokens", "length.mean")} | CLIP
    found = judged(LAW, specimen(broken, reads=READS, stage="metric", outputs=outputs)).found
    assert found is not None
    many = f"any of {1 + len(companion_pool())} batches"
    assert found.expectation.sentence() == f"changing the batch had no effect on clip on {many}: it is always 0"


def test_not_applicable() -> None:
    """A number without a quantity may be a constant of the run."""
    rate = {"rate": Output("")}
    judgement = judged(LAW, specimen(lambda _b: torch.tensor(1e-6), reads=READS, stage="metric", outputs=rate))
    assert (judgement.tried, judgement.reason) == (0, "the boundary logs no number of a declared quantity")
