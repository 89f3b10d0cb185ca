"""Columns that exclude each other are refused, and those beside them that do not are taken."""

import pytest
import torch

from frameworks.reference_specimen import TARGET
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.frameworks.reference.nonsense import boundaries

EVERY = list(boundaries(TARGET))


@pytest.mark.parametrize("boundary", EVERY, ids=lambda b: b.path)
def test_sound_is_taken_and_nonsense_is_not(boundary: Boundary) -> None:
    """Of each function, by its own answer; each is asked both."""
    batch = batch_of(torch.ones(1, 1).bool())
    answers = {name: boundary.call(batch, settings)["accepted"].item() for name, settings in boundary.settings.items()}
    assert answers == {name: float(name.startswith("sound")) for name in boundary.settings}
    assert set(answers.values()) == {0.0, 1.0}


def test_each_is_claimed_as_it_is_asked() -> None:
    """Laws read the claims, not the names."""
    (merge,) = [b for b in EVERY if b.path.endswith("merging.merge")]
    assert [claim.name for claim in merge.claims.accepted] == ["sound", "sound, of one turn"]
    assert "two pieces" in {claim.name for claim in merge.claims.refused}
