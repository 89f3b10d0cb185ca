"""Twin runs: the path ignores values that must have no effect, and faults do not."""

from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.twin_runs import PERTURBATIONS, TwinResult, compare_runs, run_twins
from training import COMPONENTS, component_name, folder_cache, recipe

FAULTS = Path(__file__).parents[3] / "examples" / "faults.py"
NORMALIZED = {"normalization": {"mean": "batch", "deviation": "batch"}}


def _twins(folder: Path, perturb: str, **more: Any) -> TwinResult:
    settings: dict[str, Any] = {
        "steps": 3,
        "environment": {"name": "training:Letter", "letters": "abcdef"},
        "rollout": {"prompts": 4, "responses": 6, "tokens": 12, "unended": "reject"},
        "update": {"prompts": 4},
    }
    return run_twins(
        recipe(folder / "twins", **(settings | more)), perturb=perturb, cache=folder_cache(folder / "cache")
    )


def _rollout(unended: str) -> dict[str, Any]:
    return {"prompts": 4, "responses": 6, "tokens": 12, "unended": unended}


@pytest.mark.parametrize("choice", COMPONENTS, ids=component_name)
def test_rejected_rewards_have_no_effect_on_any_estimator_or_loss(tmp_path: Path, choice: dict[str, Any]) -> None:
    result = _twins(tmp_path, "rejected-rewards", **choice)
    assert (result.differs_at, result.perturbed > 10) == (None, True), result.summary()


@pytest.mark.parametrize(
    ("perturb", "more"),
    [
        ("suppressed-rewards", {"rollout": _rollout("suppress"), "reward": NORMALIZED}),
        ("untrained-logprobs", {"kl": {"reward": 0.1}}),
    ],
)
def test_suppressed_and_untrained_values_have_no_effect(tmp_path: Path, perturb: str, more: dict[str, Any]) -> None:
    result = _twins(tmp_path, perturb, **more)
    assert (result.differs_at, result.perturbed > 10) == (None, True), result.summary()
    assert result.summary().startswith("metrics and weights are bitwise equal over 3 steps; ")


@pytest.mark.skipif(not FAULTS.exists(), reason="examples lie in the source tree, not in the wheel")
@pytest.mark.parametrize(
    ("fault", "perturb", "more"),
    [
        ("rejected_in_baseline", "rejected-rewards", {}),
        ("void_in_normalization", "suppressed-rewards", {"rollout": _rollout("suppress"), "reward": NORMALIZED}),
    ],
)
def test_fault_is_detected(tmp_path: Path, fault: str, perturb: str, more: dict[str, Any]) -> None:
    result = _twins(tmp_path, perturb, path=f"{FAULTS}:{fault}", **more)
    assert result.differs_at == 1
    assert "gradient_norm " in result.difference


@pytest.mark.skipif(not FAULTS.exists(), reason="examples lie in the source tree, not in the wheel")
@pytest.mark.parametrize(
    ("fault", "key", "more"),
    [
        ("kl_overwritten", "kl", {"kl": {"reward": 0.1}}),
        ("last_step_alone", "gradient_norm", {"merged": False}),
        ("sequence_split", "gradient_norm", {"prompts": 1}),
    ],
)
def test_fault_changes_what_it_documents(tmp_path: Path, fault: str, key: str, more: dict[str, Any]) -> None:
    settings: dict[str, Any] = {
        "steps": 1,
        "rollout": {"prompts": 4, "responses": 6, "tokens": 3},
        "update": {"prompts": 4},
    }
    if "merged" in more:
        settings["environment"] = {"name": "training:TwoTurns"}
        settings["rollout"] |= {"turns": 2, "merged": False}
    elif "prompts" in more:
        settings |= {"update": {"prompts": 1, "rate": 0.1}, "steps": 2}
    else:
        settings |= more
    places = tmp_path / "plain", tmp_path / "faulty"
    for place, path in zip(places, ("", f"{FAULTS}:{fault}"), strict=True):
        train(recipe(place, path=path, **settings), cache=folder_cache(tmp_path / "cache"))
    result = compare_runs(*places)
    if fault == "sequence_split":
        assert result.differs_at is None, "on policy the two policies are equal, so that no token is masked"
    else:
        assert result.differs_at == 1
        assert f"{key} " in result.difference
        assert ("gradient_norm" in result.difference) == (fault != "kl_overwritten")


def test_missing_and_damaged_checkpoints_are_errors(tmp_path: Path) -> None:
    places = tmp_path / "plain", tmp_path / "other"
    for place in places:
        place.mkdir()
        (place / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(SentinelError, match=r"plain has no checkpoint, expected a checkpoint of its last step: run"):
        compare_runs(*places)
    (places[0] / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(SentinelError, match=r"step-00000001 is damaged \(.*\), and no older one is intact: run the"):
        compare_runs(*places)


def test_nothing_to_perturb_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        SentinelError, match=r"--perturb suppressed-rewards had no values to perturb in 3 steps: let the recipe"
    ):
        _twins(tmp_path, "suppressed-rewards")
    with pytest.raises(SentinelError, match=r"has twin runs already: name another folder with out=DIR"):
        _twins(tmp_path, "suppressed-rewards")
    with pytest.raises(SentinelError, match=r"--perturb 'rejected' is unknown, the nearest is 'rejected-rewards'"):
        _twins(tmp_path, "rejected")
    assert set(PERTURBATIONS) == {"rejected-rewards", "suppressed-rewards", "untrained-logprobs"}
