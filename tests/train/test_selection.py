"""Names become functions; what is unknown, impossible or does not go together is one line, before anything runs."""

from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.selection import selected
from training import recipe

PPO = {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean"}
GDPO = {"name": "gdpo", "weight": (1.0, 0.5), "epsilon": 0.0}
MARKED = {"name": "training:Marked"}
TURNS = {"name": "turn_level_gae", "discount": 1.0, "decay": 1.0}


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
            {"estimator": {"name": "training:unmade"}},
            "estimator wants mood, which this trainer does not make: choose another",
        ),
        (
            {"estimator": {"name": "remax"}, "reward": {"scale": 2.0}},
            "reward is changed with estimator remax, expected no [reward]: it is compared with that of a",
        ),
        (
            {"estimator": GDPO, "environment": {"name": "tools"}},
            "estimator gdpo weighs parts of the reward, environment tools has none: take one with Environment.parts",
        ),
        (
            {"estimator": {"name": "gdpo", "epsilon": 0.0}},
            "estimator.weight is missing, expected numbers, as [1.0, 0.5]: it has no default",
        ),
        ({"estimator": {**GDPO, "weight": "a"}}, "estimator.weight is 'a', expected numbers, as [1.0, 0.5]"),
        ({"estimator": {**GDPO, "weight": (1.0, True)}}, "estimator.weight is (1.0, True), expected numbers, as"),
        (
            {"estimator": {**GDPO, "weight": (1.0,)}, "environment": MARKED},
            "estimator.weight has shape [1], expected K = 2: that of reward_parts",
        ),
        (
            {"estimator": GDPO, "environment": MARKED, "kl": {"reward": 0.1}},
            "kl_coefficient is given with gdpo.advantages, expected none",
        ),
        (
            {"estimator": TURNS, "critic": {"rate": 0.1}, "rollout": {"turns": 2, "merged": False}},
            "estimator turn_level_gae carries credit along one row, rollout.merged is false with 2 turns",
        ),
        ({"estimator": TURNS}, "estimator turn_level_gae needs a critic: add [critic] with its rate"),
        (
            {
                "loss": {"name": "training:of_turns", "aggregation": "token-mean"},
                "rollout": {"turns": 2, "merged": False},
            },
            "turn is read along one row, rollout.merged is false with 2 turns: merge the steps",
        ),
        ({"loss": {**PPO, "name": "pppo"}}, "loss.name 'pppo' is unknown, did you mean ppo"),
        ({"loss": {**PPO, "clip_low": "a"}}, "loss.clip_low is 'a', expected a float"),
        (
            {"loss": {**PPO, "name": "clip_cov"}},
            'loss clip_cov treats tokens apart: say which, as loss.chosen = { name = "largest", share = 2e-4 }',
        ),
        (
            {"loss": {**PPO, "chosen": {"name": "largest", "share": 0.1}}},
            "loss ppo treats no token apart: leave loss.chosen out",
        ),
        (
            {"loss": {**PPO, "name": "clip_cov", "chosen": {"name": "covariances"}}},
            "loss.chosen 'covariances' is unknown, expected one of largest, drawn_between",
        ),
        (
            {"loss": {**PPO, "name": "clip_cov", "chosen": {"name": "largest", "share": 2.0}}},
            "loss.chosen.share is 2.0, expected a number above 0 and at most 1",
        ),
        (
            {"loss": {**PPO, "clip_low": 1.5}},
            "loss.clip_low is 1.5, expected at most 1 with loss ppo: from 1 on it holds",
        ),
        ({"loss": {**PPO, "name": "cispo", "clip_low": 20}}, "loss.clip_low is 20, expected at most 1 with loss cispo"),
        (
            {"estimator": {"name": "grpo", "standardise": True, "epsilon": -1.0}},
            "estimator.epsilon is -1.0, expected a number of 0",
        ),
        (
            {"loss": {**PPO, "aggregation": "token-sum"}},
            "loss.length is None with 'token-sum', expected a number of tokens",
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
        ({"loss": {**PPO, "clip_high": float("nan")}}, "loss.clip_high is nan, expected a number"),
        ({"loss": {**PPO, "clip_high": -1.0}}, "loss.clip_high is -1.0, expected"),
        ({"reward": {"scale": 1e300}}, "reward makes of rewards 0 and 1 what is no number (reward[0] is inf, expected"),
        ({"reward": {"scale": 0.0}}, "reward.scale is 0.0, expected a number above 0"),
        ({"reward": {"least": 1.0, "most": 0.0}}, "reward.most is 0.0, expected 1.0 or more"),
        (
            {"reward": {"normalisation": {"mean": "none", "deviation": "none", "leave_one_out": True}}},
            "reward.normalisation.leave_one_out is True, expected False where mean is 'none'",
        ),
        (
            {"correction": {"weight": "token_weights", "bounds": ({"name": "truncated", "high": -2.0},)}},
            "correction.bounds.high is -2.0, expected",
        ),
        ({"environment": {"name": "math:pi"}}, "environment.name 'math:pi' is 3.14159"),
        (
            {"environment": {"name": "training:Scripted", "texts": ()}},
            "environment.name 'training:Scripted' is Scripted(",
        ),
        ({"warm": {"steps": 1}, "environment": {"name": "training:Twice"}}, "environment training:Twice has no warm()"),
        ({"path": "math:pi"}, "path 'math:pi' is 3.14159"),
        (
            {"path": "training:kept_in"},
            "path 'training:kept_in' cannot be called (got an unexpected keyword argument 'by')",
        ),
        ({"loss": {"name": "math:pi", "aggregation": "token-mean"}}, "loss 'math:pi' is 3.14159"),
        (
            {"loss": {"name": "json:loads", "aggregation": "token-mean"}},
            "loss.s is missing, expected a value, it has no",
        ),
        (
            {"loss": {"name": "training:empty_loss", "aggregation": "token-mean"}},
            "loss 'training:empty_loss' gave None, ",
        ),
        (
            {"estimator": {"name": "training:empty_loss"}},
            "estimator 'training:empty_loss' gave None, expected a tensor",
        ),
        (
            {"rollout": {"tokens": 1000}},
            "rollout.tokens is 1000 behind a prompt of 1 tokens, expected at most 32 in all",
        ),
        ({"policy": {"positions": 3}}, "rollout.tokens is 3 behind a prompt of 1 tokens, expected at most 3 in all"),
        (
            {"environment": {"name": "sort", "digits": 25}, "warm": {"steps": 1}},
            "a response of warm() is 26 behind a prompt of 26 tokens, expected at most 32 in all",
        ),
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
        (
            {"rollout": {"engine": "http", "url": "http://[bad"}},
            "rollout.url is 'http://[bad', expected an address, as",
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


@pytest.mark.parametrize("clip", [{"name": "ppo", "clip_low": 1.0}, {"name": "gmpo", "clip_low": 1.5}])
def test_lower_clip_of_1_is_none_and_one_in_nats_may_be_above(clip: dict[str, Any]) -> None:
    """A log-ratio falls as far as it may; one clip is no slip, the other holds."""
    assert selected(recipe(loss={**PPO, **clip})).loss.keywords["clip_low"] == clip["clip_low"]  # type: ignore[attr-defined]  # numbers filled in
