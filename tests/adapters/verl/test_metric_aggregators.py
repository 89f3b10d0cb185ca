"""verl's aggregators of the metrics of several steps, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, metric_aggregators
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005

OF_STEPS = """
    class MetricsAggregator:
        def __init__(self):
            self.steps = []

        def add_step_metrics(self, metrics, sample_count=0):
            weight = WEIGHT
            self.steps.append((weight, metrics))

        def get_aggregated_metrics(self):
            print("aggregated")
            total = sum(weight for weight, _ in self.steps)
            return {name: sum(w * m[name] for w, m in self.steps) / total for name in self.steps[0][1]}
"""

OF_EQUAL_STEPS = """
    class MetricsAggregator:
        def __init__(self, total_gpus):
            self.steps = []

        def add_step_metrics(self, metrics, sample_count, timestamp=None):
            self.steps.append(metrics)

        def get_aggregated_metrics(self):
            return {name: sum(m[name] for m in self.steps[FIRST:]) / len(self.steps) for name in self.steps[0]}
"""

WEIGHTED, EQUAL = "verl/trainer/ppo/v1/utils.py", "verl/experimental/fully_async_policy/detach_utils.py"


def _bound(loads: Loads, weight: str = "sample_count", first: str = "0") -> tuple[Target, dict[str, Boundary]]:
    tree = files()
    tree |= {WEIGHTED: OF_STEPS.replace("WEIGHT", weight), EQUAL: OF_EQUAL_STEPS.replace("FIRST", first)}
    target = loads(FRAMEWORK, tree)
    made = [b for b in metric_aggregators.boundaries(target) if isinstance(b, Boundary)]
    return target, {"equal" if "fully_async" in b.path else "weighted": b for b in made}


def test_both_answer_and_read_back(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"equal", "weighted"}
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(
    ("name", "broken", "found"),
    [
        ("weighted", {}, False),
        ("weighted", {"weight": "1"}, True),
        ("equal", {}, False),
        ("equal", {"first": "1"}, True),
    ],
)
def test_reduction(loads: Loads, name: str, broken: dict[str, str], found: bool) -> None:
    """Steps of unequal sizes that count alike, and a step that is left out."""
    target, boundaries = _bound(loads, **broken)
    check_verdict(MET005, boundaries[name], "steps", target, found=found)
