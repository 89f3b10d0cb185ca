"""verl's importance weights before rollout correction, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, importance_weights, losses, mismatch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

HELPER = """
    import torch
    from verl.protocol import DataProto

    def compute_mismatch_metrics(old_log_prob, rollout_log_prob, response_mask):
        metrics, count = {}, response_mask.sum(1)
        rows = -(POLICY * response_mask).sum(1)[count > 0] / count[count > 0]
        metrics["mismatch_training_ppl"] = rows.exp().mean().item()
        return metrics

    def compute_rollout_importance_weights(
        old_log_prob, rollout_log_prob, response_mask, rollout_is_level="token", rollout_is_mode="truncate",
        rollout_is_threshold=None, rollout_is_threshold_lower=None, rollout_is_veto_threshold=None,
    ):
        assert rollout_is_mode in ("truncate", "mask")
        low = rollout_is_threshold_lower or 1 / rollout_is_threshold
        away, metrics = (old_log_prob - rollout_log_prob) * response_mask, {}
        if rollout_is_level != "token":
            away = away.sum(1, keepdim=True) / (COUNT if rollout_is_level == "geometric" else 1)
        weights = away.exp().expand_as(old_log_prob)
        kept = torch.ones_like(weights)
        if rollout_is_mode == "truncate":
            weights = weights.clamp(max=rollout_is_threshold)
        else:
            kept = (weights >= low) & (weights <= rollout_is_threshold)
        if rollout_is_veto_threshold is not None:
            ratio = torch.where(response_mask.bool(), (old_log_prob - rollout_log_prob).exp(), 1.0)
            kept = kept * (VETO >= rollout_is_veto_threshold)
        weights = weights * response_mask
        metrics["rollout_is_mean"] = weights.sum() / response_mask.sum()
        RETURNED
"""

APART = """modified_response_mask = response_mask * kept
        metrics = {f"mismatch/{name}": value.item() for name, value in metrics.items()}
        return DataProto.from_dict({"rollout_is_weights": weights}), modified_response_mask, metrics"""

TOGETHER = """metrics = {f"mismatch/{name}": value.item() for name, value in metrics.items()}
        return DataProto.from_dict({"rollout_is_weights": weights * kept}), metrics"""

TRAINER = """
    from verl.trainer.ppo.mismatch_helper import compute_rollout_importance_weights

    class RayPPOTrainer:
        def compute_rollout_importance_weights_and_add_to_batch(self, batch):
            names = ("level", "mode", "threshold", "threshold_lower", "veto_threshold")
            numbers = {f"rollout_is_{name}": self.config.algorithm.get(f"rollout_is_{name}") for name in names}
            columns = (batch.batch[n] for n in ("old_log_probs", "rollout_log_probs", "response_mask"))
            found = compute_rollout_importance_weights(*columns, **numbers)
            if len(found) > 2:
                batch.batch["response_mask"] = WRITTEN
            batch.batch.update(found[0].batch)
            return batch, found[-1]
"""

SOUND = {
    "COUNT": "response_mask.sum(1, keepdim=True).clamp(min=1)",
    "VETO": "ratio.amin(1, keepdim=True)",
    "WRITTEN": "found[1]",
    "POLICY": "old_log_prob",
    "RETURNED": APART,
}

ALONE = importance_weights.WEIGHED
STEP = importance_weights.ADDED


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    helper, trainer = HELPER, TRAINER
    for word, code in {**SOUND, **broken}.items():
        helper, trainer = helper.replace(word, code), trainer.replace(word, code)
    tree, ppo = files(), "verl/trainer/ppo"
    del tree[f"{ppo}/rollout_corr_helper.py"]
    tree[f"{ppo}/mismatch_helper.py"] = helper
    tree[f"{ppo}/ray_trainer.py"] += trainer
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF})
    made = [b for module in (importance_weights, mismatch) for b in module.boundaries(target)]
    return target, {(b.path, s): b for b in made if isinstance(b, Boundary) for s in b.settings}


@pytest.mark.slow
@pytest.mark.parametrize("returned", [APART, TOGETHER])
def test_all_boundaries_answer_and_read_back(loads: Loads, returned: str) -> None:
    """Weights and rejections of each level, alone and in the trainer's batch; metrics alone and of each level."""
    target, boundaries = _bound(loads, RETURNED=returned)
    levels = importance_weights.LEVELS
    settings = {f"{level} {mode}" for level in levels for mode in ("truncated", "mask", "mask, veto", "truncate, veto")}
    steps = {pair for pair in boundaries if not pair[1].startswith(("metrics", "default"))}
    assert steps == {(path, setting) for path in (ALONE, STEP) for setting in settings}
    assert {s for _, s in set(boundaries) - steps} == {
        "default",
        "metrics of token weights",
        "metrics of sequence weights",
    }
    check_calls(target, boundaries.values())


CASES: list[tuple[Law, str, str, dict[str, str]]] = [
    (REF001, ALONE, "geometric truncated", {"COUNT": "response_mask.shape[1]"}),
    (REF001, ALONE, "token mask", {"RETURNED": APART.replace(": weights}", ": weights * kept}")}),
    (REF001, ALONE, "token truncate, veto", {"VETO": "ratio"}),
    (REF001, ALONE, "sequence mask, veto", {"VETO": "ratio.amax(1, keepdim=True)"}),
    (REF001, STEP, "token mask, veto", {"WRITTEN": "batch.batch['response_mask']"}),
    (MET001, mismatch.EARLY_GAP, "default", {"POLICY": "rollout_log_prob"}),
]


@pytest.mark.parametrize(("law", "path", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, path: str, setting: str, broken: dict[str, str], found: bool
) -> None:
    """A mean over padding, weights of rejected tokens, a veto of one token, a mask that is lost, the other policy."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[path, setting], setting, target, found=found)


@pytest.mark.parametrize(("returned", "found"), [(TOGETHER, False), (TOGETHER.replace(" * kept", ""), True)])
def test_rejected_by_a_weight_of_zero(loads: Loads, returned: str, found: bool) -> None:
    """Where there is no other mask, a rejected token has the weight 0."""
    target, boundaries = _bound(loads, RETURNED=returned)
    check_verdict(REF001, boundaries[ALONE, "sequence mask, veto"], "sequence mask, veto", target, found=found)


def test_losses_take_the_weights(loads: Loads) -> None:
    """A loss with weights of tokens is bound after the function that computes them."""
    tree = files() | {"verl/house.py": LOSS, "verl/trainer/ppo/mismatch_helper.py": HELPER}
    del tree["verl/trainer/ppo/rollout_corr_helper.py"]
    found = [b.path for b in losses.boundaries(loads(FRAMEWORK, tree))]
    assert f"{ALONE} -> verl.house.house_loss" in found


LOSS = """
    from verl.trainer.ppo.core_algos import register_policy_loss

    @register_policy_loss("house_loss")
    def house_loss(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights=None):
        return (-log_prob * advantages * rollout_is_weights * response_mask).sum() / response_mask.sum(), {}
"""
