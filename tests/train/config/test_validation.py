"""Settings that are valid alone and not together."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.config.validation import require_weights, validate_recipe
from training import recipe

REINFORCE = {"estimator": {"name": "reinforce"}}
ONE: dict[str, Any] = {"rollout": {"prompts": 1, "responses": 1, "tokens": 3}, "update": {"prompts": 1}}


def _over(mean: str, deviation: str, **more: Any) -> dict[str, Any]:
    return {"reward": {"normalization": {"mean": mean, "deviation": deviation, **more}}}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({**REINFORCE, "rollout": {"responses": 1}, **_over("group", "group")},
         "rollout.responses is 1, expected 2 or more with reward.normalization.mean='group'"),
        ({**REINFORCE, "rollout": {"responses": 1}, **_over("batch", "group")},
         "rollout.responses is 1, expected 2 or more with reward.normalization.deviation='group'"),
        ({**REINFORCE, "rollout": {"responses": 1}, **_over("none", "group")},
         "rollout.responses is 1, expected 2 or more with reward.normalization.deviation='group'"),
        ({**REINFORCE, **ONE, **_over("batch", "none")},
         "rollout.prompts x rollout.responses is 1, expected 2 or more with reward.normalization.mean='batch'"),
        ({**REINFORCE, **ONE, **_over("batch", "none", leave_one_out=True)},
         "rollout.prompts x rollout.responses is 1, expected 2 or more with reward.normalization.mean='batch'"),
        ({**REINFORCE, **ONE, **_over("none", "batch")},
         "rollout.prompts x rollout.responses is 1, expected 2 or more with reward.normalization.deviation"),
        ({"estimator": {"name": "reinforce_plus_plus", "discount": 1.0, "epsilon": 0.0}, **ONE},
         "rollout.prompts x rollout.responses is 1, expected 2 or more with estimator reinforce_plus_plus"),
        ({"estimator": {"name": "maxrl"}, "rollout": {"responses": 1}},
         "rollout.responses is 1, expected 2 or more with estimator maxrl: a single response cannot be compared"),
        ({"kl": {"target": 0.1, "horizon": 1000.0}},
         "kl.target is 0.1 with kl.reward and kl.loss 0, expected kl.reward or kl.loss above 0"),
        ({"kl": {"loss": 0.1, "target": 0.1, "horizon": 1.6}},
         "kl.horizon is 1.6, expected above 1.6: with 8 samples per step"),
        ({"threads": 10**5}, "threads is 100000, expected at most "),
        ({"rollout": {"prompts": 10**9}},
         "rollout.prompts x rollout.responses x rollout.tokens is 12000000000, expected at most 268435456: all"),
        ({"warm": {"steps": 1, "rows": 10**9}}, "warm.rows x policy.positions is 32000000000, expected at most"),
        ({"policy": {"hidden": 10**6}}, "policy has 40"),
        ({"policy": {"positions": 10**12}}, "policy has "),
    ],
)  # fmt: skip
def test_conflict_is_one_line(more: dict[str, Any], line: str) -> None:
    with pytest.raises(SentinelError) as error:
        select_components(recipe(**more))
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "more",
    [
        {**REINFORCE, "rollout": {"responses": 1}, **_over("batch", "batch")},
        {**REINFORCE, **ONE},
        {"threads": 64, **_over("group", "batch", leave_one_out=True)},
        {"kl": {"loss": 0.1, "target": 0.1, "horizon": 1.7}},
    ],
)
def test_smallest_valid_sizes_are_accepted(more: dict[str, Any]) -> None:
    validate_recipe(recipe(**more), claims={}, outcome=True, reads=frozenset(), parts=())
    select_components(recipe(**more))


GDPO: dict[str, Any] = {"estimator": {"name": "gdpo", "weight": [1.0, -0.5], "epsilon": 1e-6}}


@pytest.mark.parametrize("weights", [(), (1.0, 1.0), (1.0, -0.5)])
def test_weights_of_parts_are_1_or_those_of_the_estimator(weights: tuple[float, ...]) -> None:
    require_weights(recipe(**GDPO), weights)


@pytest.mark.parametrize(
    ("estimator", "end"),
    [
        (
            GDPO,
            "gdpo, which weighs the parts itself: remove them, or set them to estimator.weight, [1.0, -0.5]",
        ),
        ({"estimator": {"name": "own.py:parts"}}, "own.py:parts, which weighs the parts itself: remove them"),
    ],
)
def test_other_weights_of_parts_are_rejected(estimator: dict[str, Any], end: str) -> None:
    """An estimator of parts never sees them, nor their signs."""
    expected = f"environment.reward has weights [1.0, 2.0], expected 1 for each with estimator {end}"
    with pytest.raises(SentinelError, match=f"^{re.escape(expected)}"):
        require_weights(recipe(**estimator), (1.0, 2.0))


@pytest.mark.parametrize(("weight", "accepted"), [(1.0, True), (2.0, False)])
def test_a_recipe_has_no_weights_that_its_estimator_ignores(tmp_path: Path, weight: float, accepted: bool) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1", "answer": "1"}\n')
    (tmp_path / "score.py").write_text("def one(response): return 1.0\n")
    reward = [{"function": f"{tmp_path / 'score.py'}:one", "name": name, "weight": weight} for name in ("a", "b")]
    table = {"name": "jsonl", "file": str(tmp_path / "rows.jsonl"), "reward": reward}
    with nullcontext() if accepted else pytest.raises(SentinelError, match=r"^environment.reward has weights"):
        select_components(recipe(**GDPO, environment=table))
    select_components(recipe(environment=table))
