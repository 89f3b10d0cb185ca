"""A loss that claims a ratio and reads no old log-probs is right for one update of each sample only."""

from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

_LOSS: dict[str, Any] = {"stage": "policy-loss", "algorithm": "ppo", "budget": 10}
_NOTE = "the function reads no old log-probs, so the ratio is 1 at every token"


def _clipped(ratio: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages)
    return torch.where(mask, loss, 0.0).sum() / mask.sum().clamp(min=1)


def of_two(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Compare with the old policy."""
    return _clipped((logps - old_logps).exp(), advantages, mask)


def of_one(logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Compare the policy with itself."""
    return _clipped((logps - logps.detach()).exp(), advantages, mask)


def of_one_in_a_dict(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same, where the old log-probs would be another key."""
    return {"loss": of_one(batch["logprobs"], batch["advantages"], batch["mask"].bool())}


@pytest.mark.parametrize("function", [of_one, of_one_in_a_dict])
def test_a_ratio_of_one_policy_is_a_note(function: Any) -> None:
    """Unless the user states that the loss uses a ratio: then its formula is that of two policies."""
    implied = rl_sentinel.check(function, claims={"aggregation": "token-mean"}, **_LOSS)
    assert implied.ok
    assert any(note.startswith(_NOTE) for note in implied.notes)
    stated = rl_sentinel.check(function, claims={"aggregation": "token-mean", "ratio": "yes"}, **_LOSS)
    assert [(finding.code, finding.level) for finding in stated.findings] == [("REF001", "fault")]
    assert "old_logprob" in str(stated.findings[0])
    assert not any(note.startswith(_NOTE) for note in stated.notes)


def test_a_ratio_of_two_policies_needs_no_note() -> None:
    """Stated or implied; nor does a loss that claims no ratio."""
    stated = rl_sentinel.check(of_two, claims={"aggregation": "token-mean", "ratio": "yes"}, **_LOSS)
    plain = rl_sentinel.check(of_one, **{**_LOSS, "algorithm": "reinforce"}, claims={"aggregation": "token-mean"})
    assert stated.ok
    assert not [note for note in (*stated.notes, *plain.notes) if note.startswith(_NOTE)]


def test_old_log_probs_that_a_user_binds_as_a_key_are_expected_to_be_read() -> None:
    """As a parameter that is not read."""
    bind = {"batch.old_logprobs": "old_logprob"}
    bound = rl_sentinel.check(of_one_in_a_dict, claims={"aggregation": "token-mean"}, bind=bind, **_LOSS)
    assert [(finding.code, finding.level) for finding in bound.findings] == [("REF001", "fault")]
