"""The filter of AReaL's tracker, on a tracker in words of our own."""

import sys
from types import ModuleType

import pytest

from adapters.checks import Loads
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.tracked_metrics import exported, logging_only, tracker_module


class Tracker(ModuleType):
    """A tracker that stores each metric by name."""

    def __init__(self) -> None:
        """Start without metrics."""
        super().__init__("areal.utils.stats_tracker")
        self.kept: dict[str, float] = {}
        self.stat = self.scalar = self.denominator = self._store

    def _store(self, denominator: str = "", **metrics: float) -> None:
        self.kept |= {name: value for name, value in metrics.items() if value or denominator}

    def export_all(self) -> dict[str, float]:
        """Return the metrics, and drop them."""
        kept, self.kept = self.kept, {}
        return kept


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    made = Tracker()
    monkeypatch.setitem(sys.modules, "areal.utils.stats_tracker", made)
    return made


def test_without_names_nothing_is_recorded(tracker: Tracker) -> None:
    tracker.stat(loss=1.0)
    with logging_only(()) as module:
        module.denominator(tokens=2.0)
        module.stat(denominator="tokens", loss=3.0)
        module.scalar(steps=4.0)
    assert tracker.export_all() == {"loss": 1.0}


def test_only_the_names_are_recorded_from_an_empty_tracker(tracker: Tracker) -> None:
    tracker.stat(loss=1.0)
    with logging_only(("kl",)) as module:
        module.denominator(tokens=2.0)
        module.stat(denominator="tokens", loss=3.0, kl=0.5)
        module.scalar(steps=4.0)
        assert module.export_all() == {"tokens": 2.0, "kl": 0.5}
    tracker.scalar(steps=5.0)
    assert tracker.export_all() == {"steps": 5.0}


EARLY = "def export():\n    return {'loss/avg': 1.0}\n"
LATE = f"{EARLY}\ndef export_all():\n    return {{'loss/avg': 2.0}}\n"


@pytest.mark.parametrize(
    ("path", "source", "loss"),
    [("realhf/base/stats_tracker.py", EARLY, 1.0), ("areal/utils/stats_tracker.py", LATE, 2.0)],
    ids=["early", "late"],
)
def test_metrics_of_both_places(loads: Loads, path: str, source: str, loss: float) -> None:
    loads(FRAMEWORK, {"areal/__init__.py": "", path: source})
    assert exported(tracker_module()) == {"loss/avg": loss}
