"""Metrics of a TRL trainer's log, whether it adds them to the dict that it gets or logs a copy."""

from types import SimpleNamespace
from typing import Any

import pytest

from rl_sentinel.adapters.trl.kto import logged_metrics


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
