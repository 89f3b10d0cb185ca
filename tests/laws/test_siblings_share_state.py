"""DAT003: a sound, a broken and a refusing specimen."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.independence import changed_by_others
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.siblings_share_state import LAW
from specimens import judged, specimen

make = partial(specimen, reads="group", stage="batch", outputs={"changed": Output("B", "samples", "changed_by_others")})


def _own(batch: Batch) -> Tensor:
    """A dict for each sample."""
    return torch.tensor(changed_by_others([{"answer": int(one)} for one in batch.group]))


def _shared(batch: Batch) -> Tensor:
    """One dict for the samples of a prompt."""
    prompts: dict[int, dict[str, Any]] = {int(one): {"answer": int(one)} for one in batch.group}
    return torch.tensor(changed_by_others([prompts[int(one)] for one in batch.group]))


def test_sound() -> None:
    """Equal data may belong to several samples."""
    judgement = judged(LAW, make(_own))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Two samples of one prompt with one dict."""
    found = judged(LAW, make(_shared)).found
    assert found is not None
    wanted = "changed is 1 at row 0, expected 0: a write to one sample must not change another"
    assert found.expectation.sentence() == wanted
    assert (found.case.batch.rows, len(set(found.case.batch.group.tolist()))) == (2, 1)
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A boundary without the output says nothing of shared state."""
    judgement = judged(LAW, specimen(_own, reads="group", stage="batch", outputs={"changed": Output("B")}))
    assert judgement.tried == 0
    assert judgement.reason == "the boundary does not report whether a write to one sample changes another"
