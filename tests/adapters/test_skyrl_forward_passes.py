"""SkyRL's forward passes before the update, on a specimen of its call shape in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.test_skyrl_rollout import BATCH, CONFIG, PREPROCESS
from rl_sentinel.adapters.skyrl import FRAMEWORK, forward_passes
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

TRAINER = """
    import torch

    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data): return data

        def fwd_logprobs_values_reward(self, data):
            models = {"values": "critic", "base_action_log_probs": REFERENCE, "action_log_probs": "policy"}
            data.update({key: self.dispatch.forward(model, data)["output"] for key, model in models.items()})
            gap = GAP[data["loss_mask"] > 0]
            self.all_metrics.update({"NAME_mean": gap.mean().item()})
            return data
"""

GAP = '(data["rollout_logprobs"] - data["action_log_probs"]).abs()'
SHARE = '(data["rollout_logprobs"].exp() - data["action_log_probs"].exp()).abs()'
RATIO = '(data["rollout_logprobs"] - data["action_log_probs"]).exp()'

NEW, OLD = "policy/rollout_train_logprobs_abs_diff", "policy/rollout_train_prob_diff"


def _target(loads: Loads, reference: str = '"ref"', gap: str = GAP, name: str = NEW) -> Target:
    trainer = TRAINER.replace("REFERENCE", reference).replace("GAP", gap).replace("NAME", name)
    return loads(
        FRAMEWORK,
        {
            "skyrl/backends/skyrl_train/training_batch.py": BATCH,
            "skyrl/train/config.py": CONFIG.replace(
                "n_samples_per_prompt=5", "n_samples_per_prompt=5, SAMPLING"
            ).replace("SAMPLING", "sampling_params=SimpleNamespace(logprobs=None)"),
            "skyrl/train/dataset/preprocess.py": PREPROCESS,
            "skyrl/train/trainer.py": trainer,
        },
    )


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    made = [one for one in forward_passes.boundaries(target) if isinstance(one, Boundary)]
    return {("passes", setting): one for one in made for setting in one.settings}


def test_both_boundaries_answer(loads: Loads) -> None:
    target = _target(loads)
    boundaries = _bound(target)
    assert len(boundaries) == 2
    assert answering(boundaries, target) == []


@pytest.mark.parametrize(
    ("law", "setting", "sound", "broken"),
    [
        (PLC004, "outputs", {}, {"reference": '"policy"'}),
        (MET001, "metrics", {}, {"gap": RATIO}),
        (MET001, "metrics", {"name": OLD, "gap": SHARE}, {"name": OLD, "gap": f"{RATIO}.abs()"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, setting: str, sound: dict[str, str], broken: dict[str, str], found: bool
) -> None:
    """A pass stored under another name, and a ratio that is logged as a difference."""
    target = _target(loads, **(broken if found else sound))
    check_verdict(law, _bound(target)["passes", setting], setting, target, found=found)


def test_round_trips(loads: Loads) -> None:
    target = _target(loads)
    check_round_trips(target, _bound(target).values())
