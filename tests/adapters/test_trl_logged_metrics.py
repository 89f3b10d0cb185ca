"""Metrics that TRL's trainers log: where they are read, and which have a declared definition."""

from types import SimpleNamespace
from typing import Any

import pytest

from rl_sentinel.adapters.trl import losses
from rl_sentinel.adapters.trl.kto import logged_metrics
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings


class Trainer:
    """A trainer with one metric."""

    def __init__(self, *, copies: bool) -> None:
        """Have an entry of an earlier step."""
        self.copies, self.state = copies, SimpleNamespace(log_history=[{"kl": 9.0, "old": 1.0}])

    def log(self, logs: dict[str, Any]) -> None:
        """Log the metric."""
        if self.copies:
            logs = {**logs, "kl": 0.5}
        else:
            logs["kl"] = 0.5
        self.state.log_history.append({**logs, "step": 2})


@pytest.mark.parametrize("copies", [True, False])
def test_both_forms(copies: bool) -> None:
    """The entry of an earlier step is not read."""
    found = logged_metrics(Trainer(copies=copies))
    assert found["kl"] == 0.5
    assert "old" not in found


@pytest.mark.parametrize(("level", "declared"), [("token", True), ("sequence", False), ("sequence_token", False)])
def test_clip_fraction_of_tokens(level: str, declared: bool) -> None:
    """The fraction has a declared definition only where each token's own ratio is clipped."""
    source = 'self._metrics[mode]["clip_ratio/high_mean"].append(1)'
    settings: Settings = {"importance_sampling_level": level, "clip_low": 0.2, "clip_high": 0.28}
    outputs, claimed = losses.logged_metrics(source, settings, Use("logs"))
    assert bool(outputs["clip_ratio/high_mean"].quantity) is declared
    assert bool(claimed.output_definitions) is declared
