"""Decisions on packed tokens say what they are of: tokens and rows are taken, nothing else is."""

import torch

from frameworks.reference_specimen import TARGET
from rl_sentinel.core.batch import batch_of
from rl_sentinel.frameworks.reference.decisions import boundaries


def test_what_is_said_is_taken_and_what_is_not_is_refused() -> None:
    """Of two rows of one token each, where no shape tells which of the two is meant."""
    (boundary,) = boundaries(TARGET)
    batch = batch_of(torch.ones(1, 1).bool())
    answers = {name: boundary.call(batch, numbers)["accepted"].item() for name, numbers in boundary.settings.items()}
    assert answers == {"sound": 1.0, "sound, of rows": 1.0, "of what it does not say": 0.0, "of groups": 0.0}
    assert "sound, of rows" in {claim.name for claim in boundary.claims.accepted}
    assert "of groups" in {claim.name for claim in boundary.claims.refused}
