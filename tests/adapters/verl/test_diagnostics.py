"""verl's diagnostics of probabilities and of the gradient's variance, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, bound, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.law import Law
from rl_sentinel.laws.masked_token_shifts_signal import LAW as MSK002
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001

MISMATCH = """
    import torch

    def calculate_debug_metrics(data):
        mask = MASK
        one, other = (data.batch[n].exp()[mask] for n in ("rollout_log_probs", "old_log_probs"))
        apart = (one - other).abs()
        return {
            "training/rollout_probs_diff_max": apart.max().item(),
            "training/rollout_probs_diff_mean": apart.mean().item(),
            "training/rollout_probs_diff_std": apart.std(correction=0).item(),
            "training/rollout_actor_probs_pearson_corr": (one * other).mean().item(),
        }
"""

VARIANCE = """
    def compute_variance_proxy_metrics(batch, gradient_norm=None):
        columns, mask = batch.batch, batch.batch["response_mask"]
        score = 1 - 2 * columns["old_log_probs"].exp() + columns["sum_pi_squared"]
        score, squares = (score.where(mask.bool(), 0 * score)).sum(1), columns["advantages"] ** 2
        power = AVERAGE * score
        return {
            "variance_proxy/proxy2_total_power": power.mean().item(),
            "variance_proxy/proxy3_pure_noise": (power.mean() - gradient_norm**2).item(),
            "variance_proxy/expected_a_squared": (AVERAGE).mean().item(),
            "variance_proxy/expected_w": score.mean().item(),
        }
"""

TRAINED = 'data.batch["response_mask"].bool()'
OF_TRAINED = "squares.where(mask.bool(), 0 * squares).sum(1) / mask.sum(1).clamp(min=1)"


def _load(loads: Loads, mask: str = TRAINED, average: str = OF_TRAINED) -> Target:
    tree = files()
    tree["verl/trainer/ppo/metric_utils.py"] += VARIANCE.replace("AVERAGE", average)
    return loads(FRAMEWORK, tree | {"verl/utils/debug/metrics.py": MISMATCH.replace("MASK", mask)})


NAMES = ("calculate_debug_metrics", "compute_variance_proxy_metrics")


def test_reads_back(loads: Loads) -> None:
    """Columns and arguments survive the round trip."""
    target = _load(loads)
    mine = [b for (name, _), b in bound(FRAMEWORK, target).items() if name in NAMES]
    assert len(mine) == 2
    check_round_trips(target, mine)


@pytest.mark.parametrize(
    ("law", "name", "fault"),
    [
        (MSK002, NAMES[0], {"mask": '(data.batch["response_mask"] | data.batch["attention_mask"][:, 1:]).bool()'}),
        (PAD001, NAMES[1], {"average": "squares.mean(1)"}),
        (MSK002, NAMES[0], {}),
        (PAD001, NAMES[1], {}),
    ],
)
def test_faults(loads: Loads, law: Law, name: str, fault: dict[str, str]) -> None:
    """A sound specimen breaks no law; one that counts other tokens than the trained ones breaks it."""
    target = _load(loads, **fault)
    check_verdict(law, bound(FRAMEWORK, target)[name, "default"], "default", target, found=bool(fault))
