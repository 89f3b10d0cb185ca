"""Twin runs: the path is blind where nothing may look, and each fault is not."""

from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.twin_runs import PERTURBATIONS, Twins, compared, twins
from training import CHOICES, kept_in, name_of, recipe

FAULTS = Path(__file__).parents[2] / "examples" / "faults.py"
NORMALISED = {"normalisation": {"mean": "batch", "deviation": "batch"}}


def _twins(folder: Path, perturb: str, **more: Any) -> Twins:
    told: dict[str, Any] = {
        "steps": 3,
        "environment": {"name": "training:Letter", "letters": "abcdef"},
        "rollout": {"prompts": 4, "responses": 6, "tokens": 12, "unended": "reject"},
        "update": {"prompts": 4},
    }
    return twins(recipe(folder / "twins", **(told | more)), perturb=perturb, kept=kept_in(folder / "cache"))


def _rollout(unended: str) -> dict[str, Any]:
    return {"prompts": 4, "responses": 6, "tokens": 12, "unended": unended}


@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_every_estimator_and_loss_is_blind_to_rejected_rewards(tmp_path: Path, choice: dict[str, Any]) -> None:
    """To the last bit, weights too; those that a recipe can choose, from the listing of their modules."""
    found = _twins(tmp_path, "rejected-rewards", **choice)
    assert (found.parted, found.moved > 10) == (None, True), found.told()


@pytest.mark.parametrize(
    ("perturb", "more"),
    [
        ("suppressed-rewards", {"rollout": _rollout("suppress"), "reward": NORMALISED}),
        ("untrained-logprobs", {"kl": {"reward": 0.1}}),
    ],
)
def test_what_is_void_or_untrained_is_not_looked_at(tmp_path: Path, perturb: str, more: dict[str, Any]) -> None:
    """Nor this."""
    found = _twins(tmp_path, perturb, **more)
    assert (found.parted, found.moved > 10) == (None, True), found.told()
    assert found.told().startswith("equal to the last bit over 3 steps, weights too; ")


@pytest.mark.skipif(not FAULTS.exists(), reason="examples lie in the source tree, not in the wheel")
@pytest.mark.parametrize(
    ("fault", "perturb", "more"),
    [
        ("rejected_in_baseline", "rejected-rewards", {}),
        ("void_in_normalisation", "suppressed-rewards", {"rollout": _rollout("suppress"), "reward": NORMALISED}),
    ],
)
def test_fault_parts_them(tmp_path: Path, fault: str, perturb: str, more: dict[str, Any]) -> None:
    """At the first step, in what the policy learned."""
    found = _twins(tmp_path, perturb, path=f"{FAULTS}:{fault}", **more)
    assert found.parted == 1
    assert "gradient_norm " in found.differs


@pytest.mark.skipif(not FAULTS.exists(), reason="examples lie in the source tree, not in the wheel")
@pytest.mark.parametrize(
    ("fault", "key", "more"),
    [
        ("kl_overwritten", "kl", {"kl": {"reward": 0.1}}),
        ("last_step_alone", "gradient_norm", {"merged": False}),
        ("sequence_split", "gradient_norm", {"prompts": 1}),
    ],
)
def test_fault_changes_what_it_says(tmp_path: Path, fault: str, key: str, more: dict[str, Any]) -> None:
    """Against the plain run: the KL that is logged alone, or what is learned."""
    told: dict[str, Any] = {
        "steps": 1,
        "rollout": {"prompts": 4, "responses": 6, "tokens": 3},
        "update": {"prompts": 4},
    }
    if "merged" in more:
        told["environment"] = {"name": "training:Twice"}
        told["rollout"] |= {"turns": 2, "merged": False}
    elif "prompts" in more:
        told |= {"update": {"prompts": 1, "rate": 0.1}, "steps": 2}
    else:
        told |= more
    places = tmp_path / "plain", tmp_path / "faulty"
    for place, path in zip(places, ("", f"{FAULTS}:{fault}"), strict=True):
        train(recipe(place, path=path, **told), kept=kept_in(tmp_path / "cache"))
    found = compared(*places)
    if fault == "sequence_split":
        assert found.parted is None, "on policy the two policies are one, so that nothing is left out"
    else:
        assert found.parted == 1
        assert f"{key} " in found.differs
        assert ("gradient_norm" in found.differs) == (fault != "kl_overwritten")


def test_nothing_to_move_is_no_equality(tmp_path: Path) -> None:
    """It is told, with the way out; so are unknown words, and twins that are there."""
    with pytest.raises(
        SentinelError, match=r"--perturb suppressed-rewards found nothing to move in 3 steps: let the recipe"
    ):
        _twins(tmp_path, "suppressed-rewards")
    with pytest.raises(SentinelError, match=r"holds twins already: name another with out=DIR"):
        _twins(tmp_path, "suppressed-rewards")
    with pytest.raises(SentinelError, match=r"--perturb 'rejected' is unknown, did you mean rejected-rewards"):
        _twins(tmp_path, "rejected")
    assert set(PERTURBATIONS) == {"rejected-rewards", "suppressed-rewards", "untrained-logprobs"}
