"""Names become functions; what is unknown, impossible or does not go together is one line, before anything runs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.selection import filled, imported, selected
from training import CHOICES, REFUSED, SERVED, name_of, recipe

PPO = {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean"}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"estimator": {"name": "gripo"}}, "estimator.name 'gripo' is unknown, did you mean grpo"),
        (
            {"estimator": {"name": "grpo", "standardize": True, "epsilon": 0.0}},
            "estimator.standardize is unknown, did you mean standardise",
        ),
        ({"estimator": {"name": "grpo", "epsilon": 0.0}}, "estimator.standardise is missing, expected a bool"),
        (
            {"estimator": {"name": "grpo", "standardise": 1, "epsilon": 0.0}},
            "estimator.standardise is 1, expected a bool",
        ),
        ({"estimator": {"name": "rloo", "k": 1}}, "estimator.k is unknown, expected no numbers"),
        (
            {"estimator": {"name": "remax"}},
            "estimator wants reward_baseline, which this trainer does not make: choose another",
        ),
        ({"loss": {**PPO, "name": "pppo"}}, "loss.name 'pppo' is unknown, did you mean ppo"),
        ({"loss": {**PPO, "clip_low": "a"}}, "loss.clip_low is 'a', expected a float"),
        (
            {"loss": {**PPO, "name": "clip_cov"}},
            "loss wants chosen, which this trainer does not make: choose another",
        ),
        (
            {"estimator": {"name": "grpo", "standardise": True, "epsilon": -1.0}},
            "epsilon is -1.0, expected a number of 0",
        ),
        (
            {"loss": {**PPO, "aggregation": "token-sum"}},
            "length is None with 'token-sum', expected a number of tokens",
        ),
        ({"environment": {"name": "sorting"}}, "environment.name 'sorting' is unknown, did you mean sort"),
        (
            {"environment": {"name": "training:Nothing"}},
            "environment.name 'training:Nothing' cannot be imported (module 'training' has no attribute 'Nothing')",
        ),
        ({"environment": {"name": "sort", "digits": 0}}, "environment.digits is 0, expected 1 to 64"),
        ({"environment": {"name": "sort", "digit": 3}}, "environment.digit is unknown, did you mean digits"),
        ({"kl": {"reward": 0.1, "loss": 0.1}}, "kl.reward is 0.1 and kl.loss is 0.1, expected one of them 0"),
        ({"kl": {"target": 0.1}}, "kl.target and kl.horizon go together"),
        ({"kl": {"estimator": "k9"}}, "kl.estimator 'k9' is unknown, did you mean k3"),
        ({"rollout": {"responses": 1}}, "rollout.responses is 1, expected 2 or more with estimator grpo"),
        ({"rollout": {"engine": "proces"}}, "rollout.engine 'proces' is unknown, did you mean process"),
        (
            {
                "rollout": {"turns": 2, "merged": False},
                "estimator": {"name": "reinforce_plus_plus", "discount": 1.0, "epsilon": 0.0},
            },
            "estimator reinforce_plus_plus carries credit along one row, rollout.merged is false with 2 turns",
        ),
        (
            {"estimator": {"name": "gae", "discount": 1.0, "decay": 1.0}},
            "estimator gae needs a critic: add [critic] with its rate",
        ),
        ({"critic": {"rate": 0.1}}, "estimator grpo reads no critic: leave [critic] out"),
        (
            {"rollout": {"staleness": 1}},
            "rollout.staleness is 1, expected a correction with it: name correction.weight",
        ),
        ({"rollout": {"url": "http://there"}}, "rollout.url is 'http://there' with engine process: the address is of"),
        ({"update": {"prompts": 3}}, "update.prompts is 3, expected at most rollout.prompts, 2"),
        ({"policy": {"hidden": 18}}, "policy.hidden is 18, expected a multiple of 2 x policy.heads"),
        ({"correction": {"bounds": ({"name": "truncated", "high": 2.0},)}}, "bounds are given without a weight"),
        (
            {"correction": {"weight": "token_weight"}},
            "correction.weight 'token_weight' is unknown, did you mean token_weights",
        ),
    ],
)
def test_what_cannot_be_is_one_line(more: dict[str, Any], line: str) -> None:
    """With the key, and the way out."""
    with pytest.raises(SentinelError) as told:
        selected(recipe(**more))
    assert str(told.value).startswith(line)
    assert "\n" not in str(told.value)


def test_numbers_are_filled_in() -> None:
    """And correction stages, in their order."""
    correction = {
        "reject": ({"name": "rows_kept", "estimator": "k1", "over": "mean", "low": -1.0, "high": 1.0},),
        "weight": "token_weights",
        "bounds": ({"name": "truncated", "high": 2.0},),
    }
    found = selected(recipe(correction=correction))
    group, live = torch.tensor([0, 0]), torch.tensor([True, True])
    advantage = found.choices.estimator(reward=torch.tensor([1.0, 0.0]), group=group, live=live)
    assert advantage.tolist() == [0.5, -0.5]
    assert (len(found.choices.rejections), len(found.choices.bounds), found.compares) == (1, 1, True)


def test_place_of_a_file_is_imported(tmp_path: Path) -> None:
    """Once; and what is no Python is told."""
    (tmp_path / "mine_here.py").write_text("VALUE = []\n")
    place = f"{tmp_path / 'mine_here.py'}:VALUE"
    assert imported("path", place) is imported("path", place)
    (tmp_path / "none_here.py").write_text("def (:\n")
    with pytest.raises(SentinelError, match=r"path '.*none_here.py:VALUE' cannot be imported \(invalid syntax"):
        imported("path", f"{tmp_path / 'none_here.py'}:VALUE")


def test_parameter_that_is_no_number_is_not_asked_of_the_recipe() -> None:
    """It is what the trainer gives."""

    def halved(reward: float, *, factor: float = 0.5) -> float:
        return reward * factor

    assert filled("estimator", halved, {}, frozenset({"reward"}))(2.0) == 1.0
    with pytest.raises(SentinelError, match=r"estimator.reward is unknown, expected one of factor"):
        filled("estimator", halved, {"reward": 1.0}, frozenset({"reward"}))


@pytest.mark.parametrize("choice", [c for c in CHOICES if c not in SERVED], ids=name_of)
def test_what_reads_a_column_that_is_not_made_is_refused(choice: dict[str, Any]) -> None:
    """One line that names the column; every other module of the listing is tried elsewhere, and learns."""
    table, column = next(iter(choice)), REFUSED[name_of(choice)]
    with pytest.raises(SentinelError) as told:
        selected(recipe(**choice))
    assert str(told.value) == f"{table} wants {column}, which this trainer does not make: choose another"


def test_what_is_refused_is_listed_by_its_name() -> None:
    """Nothing else is passed over."""
    assert {name_of(c) for c in CHOICES if c not in SERVED} == set(REFUSED)
