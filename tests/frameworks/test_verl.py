"""verl's adapter, on a specimen of its call shapes in words of our own."""

from collections.abc import Callable

import pytest
import torch

from frameworks.adapters import answering, bound, judged_at
from frameworks.verl_specimen import CUSTOM, files
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Unbound
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl import FRAMEWORK
from rl_sentinel.frameworks.verl.trajectories import keys
from rl_sentinel.laws.dead_row_shifts_signal import LAW as MSK001
from rl_sentinel.laws.gradient_off_mask import LAW as PLC002
from rl_sentinel.laws.trained_token_without_signal import LAW as PLC001

Loads = Callable[..., Target]


def test_all_boundaries_answer(loads: Loads) -> None:
    """Each family binds, and its outputs move."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files()))
    assert answering(boundaries) == []
    assert {name for name, _ in boundaries} == {
        "agg_loss",
        "apply_kl_penalty",
        "compute_advantage",
        "compute_advantage_for_multi_trajectories",
        "compute_data_metrics",
        "compute_gae_advantage_return",
        "compute_gdpo_outcome_advantage",
        "compute_grpo_outcome_advantage",
        "compute_pf_ppo_reweight_data",
        "compute_policy_loss_vanilla",
        "compute_rloo_outcome_advantage",
        "compute_value_loss",
        "kl_penalty",
    }


@pytest.mark.parametrize("place", ["verl/house.py", "recipe/house/rules.py"])
def test_custom_pieces_are_audited_unasked(loads: Loads, place: str) -> None:
    """An estimator and a loss that a module of the tree registers are found, called and judged."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files() | {place: CUSTOM}))
    assert answering(boundaries) == []
    estimator, dispatch = boundaries["house_rule", "default"], boundaries["compute_advantage", "house_rule"]
    assert "group" in estimator.reads
    for boundary, setting in ((estimator, "default"), (dispatch, "house_rule")):
        assert judged_at(MSK001, boundary, setting).found is not None
    assert judged_at(PLC002, boundaries["house_loss", "default"], "default").found is not None


def test_custom_pieces_that_cannot_be_imported_are_told(loads: Loads) -> None:
    """A module that would register something, and fails, is unbound by its name."""
    tree = files() | {"recipe/house.py": CUSTOM + "\n    raise RuntimeError('no luck')\n"}
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree)) if isinstance(b, Unbound)]
    assert {(b.path, b.stage) for b in unbound} == {("recipe.house", "advantage"), ("recipe.house", "policy-loss")}
    assert all("no luck" in b.reason for b in unbound)


def test_outputs_of_one_trajectory(loads: Loads) -> None:
    """What all outputs get is sound; what the last one alone would get by its positions is found."""
    pair = ("compute_advantage_for_multi_trajectories", "grpo")
    sound = bound(FRAMEWORK, loads(FRAMEWORK, files()))[pair]
    assert judged_at(PLC001, sound, "grpo").found is None


def test_broadcast_by_position_is_found(loads: Loads) -> None:
    """The last output's advantages laid over longer ones leave their later tokens at zero."""
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, files(broadcast="answers[owner] * mask")))
    judgement = judged_at(PLC001, boundaries["compute_advantage_for_multi_trajectories", "grpo"], "grpo")
    assert judgement.found is not None


def test_keys() -> None:
    """Prompt, trajectory and the number of the output; the last one has the greatest number."""
    batch = batch_of(
        torch.ones(3, 1, dtype=torch.bool),
        group=torch.tensor([7, 7, 2]),
        trajectory=torch.tensor([4, 4, 1]),
        step=torch.tensor([1, 0, 0]),
        last_step=torch.tensor([True, False, True]),
    )
    assert keys(batch) == ["prompt-7_4_2", "prompt-7_4_0", "prompt-2_1_2"]
