"""verl's bypass mode and the metrics that it logs, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.verl_specimen import ACTOR, ALGORITHM, CORE, files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.bypass import BYPASS, BYPASSES, bypass_boundary, has_correction_section
from rl_sentinel.adapters.verl.registries import LOSSES, registered
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

SECTION = """
    @dataclass
    class RolloutCorrectionConfig:
        bypass_mode: bool = False
        loss_type: str = "ppo_clip"
        rollout_is: str | None = "sequence"
        rollout_rs: str | None = None
        rollout_rs_threshold: str | None = None
"""

LOSS = """
    @register_policy_loss("bypass_mode")
    def compute_policy_loss_bypass_mode(
        old_log_prob, log_prob, advantages, response_mask, loss_agg_mode="token-mean", config=None,
        rollout_is_weights=None,
    ):
        from verl.trainer.ppo.rollout_corr_helper import compute_offpolicy_metrics
        loss, metrics = compute_policy_loss_vanilla(
            old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config
        )
        gaps = compute_offpolicy_metrics(COMPARED, response_mask)
        return loss, {**metrics, **{f"rollout_corr/{name}": value for name, value in gaps.items()}}
"""


def _bound(loads: Loads, compared: str) -> tuple[Target, dict[str, Boundary]]:
    optional = 'loss_mode: str = "vanilla"\n        rollout_correction: object = None\n'
    tree = {
        **files(),
        "verl/workers/config/actor.py": ACTOR.replace("CHECKED", "True").replace(
            'loss_mode: str = "vanilla"\n', optional
        ),
        "verl/trainer/config/algorithm.py": ALGORITHM + SECTION,
        "verl/trainer/ppo/core_algos.py": CORE + LOSS.replace("COMPARED", compared),
    }
    target = loads(FRAMEWORK, tree)
    assert has_correction_section(target)
    loss = (registered(target, LOSSES) or {})[BYPASS]
    return target, {family: bypass_boundary(target, loss, family) for family in BYPASSES}


def test_metrics_are_read_in_each_setting_without_rejections(loads: Loads) -> None:
    target, found = _bound(loads, "log_prob.detach(), old_log_prob")
    logged = ["rollout_corr/kl", "rollout_corr/training_ppl", "actor/ppo_kl"]
    for family, boundary in found.items():
        assert list(boundary.outputs) == ["loss", *(() if "rejection" in family else logged)]
    assert answering({(name, name): found[name] for name in ("clipped", "reinforce, rejection")}, target) == []


@pytest.mark.parametrize(
    ("compared", "wrong"),
    [
        ("log_prob.detach(), old_log_prob", False),
        ("old_log_prob, old_log_prob", True),
        ("old_log_prob, log_prob.detach()", True),
    ],
)
def test_policies_that_a_metric_compares(loads: Loads, compared: str, *, wrong: bool) -> None:
    """The current policy and the sampler, the sampler with itself, and both in the other order."""
    target, found = _bound(loads, compared)
    check_verdict(MET001, found["clipped"], "clipped", target, found=wrong)
