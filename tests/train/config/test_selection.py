"""Components are resolved and validated together before a run starts."""

from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.selection import select_components
from training import recipe

PPO = {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean"}
GDPO = {"name": "gdpo", "weight": (1.0, 0.5), "epsilon": 0.0}
MARKED = {"name": "training:TwoParts"}
TURNS = {"name": "turn_level_gae", "discount": 1.0, "decay": 1.0}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"estimator": {"name": "gripo"}}, "estimator.name 'gripo' is unknown, the nearest is 'grpo'"),
        (
            {"estimator": {"name": "grpo", "standardise": True, "epsilon": 0.0}},
            "estimator.standardise is unknown, the nearest is 'standardize'",
        ),
        ({"estimator": {"name": "grpo", "epsilon": 0.0}}, "estimator.standardize is missing, expected a bool"),
        (
            {"estimator": {"name": "grpo", "standardize": 1, "epsilon": 0.0}},
            "estimator.standardize is 1, expected a bool",
        ),
        ({"estimator": {"name": "rloo", "k": 1}}, "estimator.k is unknown, expected no parameters: remove it"),
        (
            {"estimator": {"name": "training:unknown_column"}},
            "estimator needs column mood, which the trainer does not have, expected one of ",
        ),
        (
            {"estimator": {"name": "remax"}, "reward": {"scale": 2.0}},
            (
                "reward is set with estimator remax, expected no [reward]: the baseline, which is the reward of the "
                "greedy response, is not shaped"
            ),
        ),
        (
            {"estimator": GDPO, "environment": {"name": "tools"}},
            (
                "environment tools has no reward parts, expected at least one with estimator gdpo: choose an "
                "environment "
                "with Environment.parts, or another estimator"
            ),
        ),
        (
            {"estimator": {"name": "gdpo", "epsilon": 0.0}},
            "estimator.weight is missing, expected a list of numbers, such as [1.0, 0.5]: set it in the recipe",
        ),
        (
            {"estimator": {**GDPO, "weight": "a"}},
            "estimator.weight is 'a', expected a list of numbers, such as [1.0, 0.5]",
        ),
        (
            {"estimator": {**GDPO, "weight": (1.0, True)}},
            "estimator.weight is (1.0, True), expected a list of numbers, such as",
        ),
        (
            {"estimator": {**GDPO, "weight": (1.0,)}, "environment": MARKED},
            "estimator.weight has shape [1], expected [2], as in reward_parts",
        ),
        (
            {"estimator": GDPO, "environment": MARKED, "kl": {"reward": 0.1}},
            "kl.reward is 0.1, expected 0 with estimator gdpo, which reads reward parts only: set kl.loss instead",
        ),
        (
            {"estimator": TURNS, "critic": {"rate": 0.1}, "rollout": {"turns": 2, "merged": False}},
            "rollout.merged is false with 2 turns, expected true: estimator turn_level_gae assigns credit",
        ),
        (
            {"estimator": TURNS},
            (
                "critic is missing, expected a critic with estimator turn_level_gae, which reads values: add "
                "[critic] with "
                "its rate"
            ),
        ),
        (
            {
                "loss": {"name": "training:turn_weighted_loss", "aggregation": "token-mean"},
                "rollout": {"turns": 2, "merged": False},
            },
            (
                "rollout.merged is false with 2 turns, expected true: the estimator or the loss reads turn "
                "numbers, and only a merged row has all turns"
            ),
        ),
        ({"loss": {**PPO, "name": "pppo"}}, "loss.name 'pppo' is unknown, the nearest is 'ppo'"),
        ({"loss": {**PPO, "clip_low": "a"}}, "loss.clip_low is 'a', expected a float"),
        (
            {"loss": {**PPO, "name": "clip_cov"}},
            (
                "loss.chosen is missing, expected a choice of tokens with loss clip_cov: set loss.chosen, such as "
                'loss.chosen = { name = "largest", share = 2e-4 }'
            ),
        ),
        (
            {"loss": {**PPO, "chosen": {"name": "largest", "share": 0.1}}},
            "loss.chosen is set, expected no loss.chosen with loss ppo, which does not read it: remove it",
        ),
        (
            {"loss": {**PPO, "name": "clip_cov", "chosen": {"name": "covariances"}}},
            "loss.chosen 'covariances' is not available here, expected one of largest, drawn_between",
        ),
        (
            {"loss": {**PPO, "name": "clip_cov", "chosen": {"name": "largest", "share": 2.0}}},
            "loss.chosen.share is 2.0, expected a number above 0 and at most 1",
        ),
        (
            {"loss": {**PPO, "clip_low": 1.5}},
            (
                "loss.clip_low is 1.5, expected at most 1 with loss ppo: a larger value has the same effect as "
                "1, because "
                "no ratio and no probability is below 0"
            ),
        ),
        ({"loss": {**PPO, "name": "cispo", "clip_low": 20}}, "loss.clip_low is 20, expected at most 1 with loss cispo"),
        (
            {"estimator": {"name": "grpo", "standardize": True, "epsilon": -1.0}},
            "estimator.epsilon is -1.0, expected a number of 0",
        ),
        (
            {"loss": {**PPO, "aggregation": "token-sum"}},
            "loss.length is None with 'token-sum', expected a number of tokens",
        ),
        ({"environment": {"name": "sorting"}}, "environment.name 'sorting' is unknown, the nearest is 'sort'"),
        (
            {"environment": {"name": "training:Nothing"}},
            "environment.name 'training:Nothing': 'Nothing' is not defined in training, expected ",
        ),
        ({"environment": {"name": "sort", "digits": 0}}, "environment.digits is 0, expected 1 to 64"),
        ({"environment": {"name": "sort", "digit": 3}}, "environment.digit is unknown, the nearest is 'digits'"),
        ({"kl": {"reward": 0.1, "loss": 0.1}}, "kl.reward is 0.1 and kl.loss is 0.1, expected one of them to be 0"),
        (
            {"kl": {"target": 0.1}},
            "kl.target is set without kl.horizon, expected both or neither: set kl.horizon too",
        ),
        (
            {"kl": {"horizon": 100.0}},
            "kl.horizon is set without kl.target, expected both or neither: set kl.target too",
        ),
        ({"loss": {**PPO, "clip_high": float("nan")}}, "loss.clip_high is nan, expected a number"),
        ({"loss": {**PPO, "clip_high": -1.0}}, "loss.clip_high is -1.0, expected"),
        (
            {"reward": {"scale": 1e300}},
            "reward shaping turns rewards 0 and 1 into invalid numbers (reward[0] is inf): lower",
        ),
        ({"reward": {"scale": 0.0}}, "reward.scale is 0.0, expected a number above 0"),
        ({"reward": {"least": 1.0, "most": 0.0}}, "reward.most is 0.0, expected 1.0 or more"),
        (
            {"reward": {"normalization": {"mean": "none", "deviation": "none", "leave_one_out": True}}},
            "reward.normalization.leave_one_out is True, expected False with mean 'none'",
        ),
        (
            {"correction": {"weight": "token_weights", "bounds": ({"name": "truncated", "high": -2.0},)}},
            "correction.bounds.high is -2.0, expected",
        ),
        ({"environment": {"name": "math:pi"}}, "environment.name 'math:pi' is 3.14159"),
        (
            {"environment": {"name": "training:ScriptedEngine", "texts": ()}},
            "environment.name 'training:ScriptedEngine' is ScriptedEngine(",
        ),
        (
            {"warm": {"steps": 1}, "environment": {"name": "training:TwoTurns"}},
            (
                "environment training:TwoTurns has no method warm(), expected this method with [warm]: add the "
                "method, or "
                "remove [warm]"
            ),
        ),
        ({"path": "math:pi"}, "path 'math:pi' is 3.14159"),
        (
            {"path": "training:folder_cache"},
            "path 'training:folder_cache' cannot be called as path(rollout, by=choices) (got",
        ),
        ({"loss": {"name": "math:pi", "aggregation": "token-mean"}}, "loss 'math:pi' is 3.14159"),
        (
            {"loss": {"name": "json:loads", "aggregation": "token-mean"}},
            (
                "loss.s is missing, expected a value: set it in the recipe; if it is a column of the trainer, call it "
                "one of advantage, aggregation, chosen, logprob, mask, old_logprob, turn"
            ),
        ),
        (
            {"loss": {"name": "training:returns_none", "aggregation": "token-mean"}},
            "loss 'training:returns_none' returned None, ",
        ),
        (
            {"estimator": {"name": "training:returns_none"}},
            "estimator 'training:returns_none' returned None, expected a tensor",
        ),
        (
            {"rollout": {"tokens": 1000}},
            "rollout.tokens is 1000 after a prompt of 1 tokens, expected at most 32 in total",
        ),
        ({"policy": {"positions": 3}}, "rollout.tokens is 3 after a prompt of 1 tokens, expected at most 3 in total"),
        (
            {"environment": {"name": "sort", "digits": 25}, "warm": {"steps": 1}},
            (
                "response length of warm() is 26 after a prompt of 26 tokens, expected at most 32 in total: reduce "
                "response length of warm(), shorten the prompt, or raise policy.positions"
            ),
        ),
        ({"kl": {"estimator": "k9"}}, "kl.estimator 'k9' is unknown, expected one of k1, k2, k3, "),
        ({"rollout": {"responses": 1}}, "rollout.responses is 1, expected 2 or more with estimator grpo"),
        ({"rollout": {"engine": "proces"}}, "rollout.engine 'proces' is unknown, the nearest is 'process'"),
        (
            {
                "rollout": {"turns": 2, "merged": False},
                "estimator": {"name": "reinforce_plus_plus", "discount": 1.0, "epsilon": 0.0},
            },
            "rollout.merged is false with 2 turns, expected true: estimator reinforce_plus_plus assigns",
        ),
        (
            {"estimator": {"name": "gae", "discount": 1.0, "decay": 1.0}},
            "critic is missing, expected a critic with estimator gae, which reads values: add [critic] with its rate",
        ),
        (
            {"critic": {"rate": 0.1}},
            "critic is set, expected no critic with estimator grpo, which reads no values: remove [critic]",
        ),
        (
            {"rollout": {"staleness": 1}},
            (
                "rollout.staleness is 1, expected a correction of old responses: set correction.weight or "
                "correction.reject"
            ),
        ),
        (
            {"rollout": {"engine": "http", "url": "http://[bad"}},
            "rollout.url is 'http://[bad', expected one address, such as",
        ),
        (
            {"rollout": {"url": "http://there"}},
            (
                "rollout.url is 'http://there' with engine process, expected no address: set rollout.engine to http or "
                "vllm, or remove rollout.url"
            ),
        ),
        (
            {"rollout": {"engine": "http"}},
            "rollout.url is '' with engine http, expected the address of the server, such as http://127.0.0.1:8000",
        ),
        ({"update": {"prompts": 3}}, "update.prompts is 3, expected at most 2 (rollout.prompts)"),
        ({"policy": {"hidden": 18}}, "policy.hidden is 18, expected a multiple of 4 (2 x policy.heads)"),
        ({"correction": {"bounds": ({"name": "truncated", "high": 2.0},)}}, "bounds are given and weight is None"),
        (
            {"correction": {"weight": "token_weight"}},
            "correction.weight 'token_weight' is unknown, the nearest is 'token_weights'",
        ),
        # A log-ratio is no weight, and a factor of a KL is no KL.
        (
            {"correction": {"weight": "log_ratios"}},
            "correction.weight 'log_ratios' is not available here, expected one of token_",
        ),
        (
            {"kl": {"estimator": "importance_weighted"}},
            "kl.estimator 'importance_weighted' is not available here, expected one of k1, k2, ",
        ),
    ],
)
def test_conflict_is_one_line(more: dict[str, Any], line: str) -> None:
    with pytest.raises(SentinelError) as error:
        select_components(recipe(**more))
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_parameters_are_bound() -> None:
    correction = {
        "reject": ({"name": "rows_kept", "estimator": "k1", "over": "mean", "low": -1.0, "high": 1.0},),
        "weight": "token_weights",
        "bounds": ({"name": "truncated", "high": 2.0},),
    }
    selection = select_components(recipe(correction=correction))
    group, live = torch.tensor([0, 0]), torch.tensor([True, True])
    advantage = selection.choices.estimator(reward=torch.tensor([1.0, 0.0]), group=group, live=live)
    assert advantage.tolist() == [0.5, -0.5]
    assert (len(selection.choices.rejections), len(selection.choices.bounds), selection.needs_old_logprob) == (
        1,
        1,
        True,
    )


@pytest.mark.parametrize("clip", [{"name": "ppo", "clip_low": 1.0}, {"name": "gmpo", "clip_low": 1.5}])
def test_lower_clip_of_1_or_in_nats_is_accepted(clip: dict[str, Any]) -> None:
    assert select_components(recipe(loss={**PPO, **clip})).loss.keywords["clip_low"] == clip["clip_low"]  # type: ignore[attr-defined]  # parameters bound


@pytest.mark.parametrize(
    ("loss", "kl", "lazy"),
    [
        ({"name": "reinforce"}, None, True),
        ({"name": "reinforce"}, {"loss": 0.1}, False),
        ({"name": "training:scaled_by_the_largest"}, None, False),
    ],
    ids=["library", "library with a KL", "own"],
)
def test_rows_with_advantage_zero_are_skipped_only_where_they_have_no_gradient(
    loss: dict[str, Any], kl: dict[str, float] | None, *, lazy: bool
) -> None:
    config = recipe(loss={**loss, "aggregation": "token-mean"}, kl=kl)
    assert select_components(config).lazy == lazy
