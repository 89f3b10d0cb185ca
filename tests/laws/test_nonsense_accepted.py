"""CFG003: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.nonsense_accepted import LAW
from specimens import judged, specimen

ACCEPTED = {"accepted": Output("", "", "accepted")}
SETTINGS = {"default": {"size": 4}, "no group": {"size": 0}, "lone": {"size": 1}}
NONSENSE = {"refused:no group": "a group has a response", "refused:lone": "nothing is left out"}


def _strict(_batch: Batch, size: int) -> Tensor:
    if size < 2:
        message = f"size is {size}, expected at least 2"
        raise ValueError(message)
    return torch.tensor(1.0)


def _lax(_batch: Batch, size: int) -> Tensor:
    if size < 1:
        message = f"size is {size}, expected at least 1"
        raise ValueError(message)
    return torch.tensor(1.0)


def test_sound() -> None:
    """What is refused in words is held."""
    boundary = specimen(_strict, reads="", stage="config", outputs=ACCEPTED, claims=NONSENSE, settings=SETTINGS)
    judgement = judged(LAW, boundary)
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """What is accepted is listed in one finding, with the reason that the claim gives."""
    boundary = specimen(_lax, reads="", stage="config", outputs=ACCEPTED, claims=NONSENSE, settings=SETTINGS)
    found = judged(LAW, boundary).found
    assert found is not None
    assert found.expectation.sentence() == "accepted, but must be refused: lone (nothing is left out)"
    assert LAW.level(found.case) == "hazard"


def test_not_applicable() -> None:
    """Without a claim nothing is nonsense."""
    judgement = judged(LAW, specimen(_lax, reads="", stage="config", outputs=ACCEPTED, settings=SETTINGS))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims no setting that must be refused")


def test_what_is_claimed_to_be_sound_is_accepted() -> None:
    claims = {**NONSENSE, "accepted:default": "four rows are enough"}

    def closed(_batch: Batch, size: int) -> Tensor:
        message = f"size is {size}, expected another"
        raise ValueError(message)

    for compute, story in (
        (_strict, ""),
        (
            closed,
            "refused, but must be accepted: default (four rows are enough: ValueError: size is 4, expected another)",
        ),
    ):
        boundary = specimen(compute, reads="", stage="config", outputs=ACCEPTED, claims=claims, settings=SETTINGS)
        found = judged(LAW, boundary).found
        assert (found.expectation.sentence() if found else "") == story
