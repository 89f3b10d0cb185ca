"""Variants of usual algorithms can be stated, are sound, and their faults are found."""

from typing import Any

import pytest
import torch

import rl_sentinel
from checks import variants as own
from quick import slow_after

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

_PPO: dict[str, Any] = {"stage": "policy-loss", "algorithm": "ppo"}
_GRPO: dict[str, Any] = {"stage": "policy-loss", "algorithm": "grpo"}
_CISPO: dict[str, Any] = {"stage": "policy-loss", "algorithm": "cispo"}
_DR_GRPO: dict[str, Any] = {"stage": "policy-loss", "algorithm": "dr_grpo"}
_WHOLE: dict[str, Any] = {"stage": "policy-loss", "algorithm": "sequence ppo"}
_ADVANTAGE: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo"}
_BATCH: dict[str, Any] = {**_ADVANTAGE, "claims": {"deviation-of": "batch"}}
_ONE: dict[str, Any] = {**_ADVANTAGE, "bind": {"rewards": "reward[K]"}}
_ONE_BY_TOKEN: dict[str, Any] = {
    **_ADVANTAGE,
    "bind": {"token_level_rewards": "token_rewards[K T]", "response_mask": "mask[K T]"},
}
_GAE: dict[str, Any] = {
    "stage": "advantage",
    "algorithm": "gae",
    "bind": {"dones": lambda b: (torch.arange(b.mask.shape[1]) == b.length.unsqueeze(1) - 1).float()},
}
_MEAN: dict[str, Any] = {"stage": "aggregate", "claims": {"aggregation": "token-mean"}}
_TRAINER = own.Algorithm()


@pytest.mark.parametrize(
    ("function", "options"),
    slow_after(
        8,
        [
            (own.class_settings, _PPO),
            (_TRAINER.loss, _GRPO),
            (own.cispo, _CISPO),
            (own.cispo_by_literal, _CISPO),
            (own.dr_grpo, _DR_GRPO),
            (own.dr_grpo_by_global, _DR_GRPO),
            (own.by_items, _GRPO),
            (own.of_responses, _WHOLE),
            (own.by_batch, _BATCH),
            (own.one_prompt, _ONE),
            (own.one_prompt_documented, _ADVANTAGE),
            (own.one_prompt_listed, _ONE),
            (own.one_prompt_by_token, _ONE_BY_TOKEN),
            (own.size_of_config, _ADVANTAGE),
            (own.size_of_global, _ADVANTAGE),
            (own.size_of_default, _ADVANTAGE),
            (own.truncated_sampling, _GRPO),
            (own.done_at_the_end, _GAE),
            (own.decoupled, _GRPO),
            (own.k1_in_the_loss, _GRPO),
            (own.gspo_by_literals, {"stage": "policy-loss", "algorithm": "gspo"}),
            (own.dr_grpo_by_width, _DR_GRPO),
            (own.bounded_ratio, {"stage": "policy-loss", "algorithm": "importance sampling", "bind": {"cap": 8.0}}),
            (own.positive_groups, {"stage": "advantage", "algorithm": "maxrl"}),
            (own.mean_entropy, _MEAN),
            (own.masked_mean, _MEAN),
            (own.max_rl, {"stage": "advantage", "algorithm": "maxrl"}),
            (own.mean_entropy, {"stage": "aggregate", "algorithm": "entropy"}),
            (own.likelihood, {"stage": "policy-loss", "algorithm": "negative log-likelihood"}),
            (own.truncated_ratio, {"stage": "policy-loss", "algorithm": "importance sampling"}),
            (own.entropy, {"stage": "entropy"}),
            (own.without_gradient, {"stage": "logprob"}),
        ],
    ),
)
def test_variants_equal_their_formula(function: Any, options: dict[str, Any]) -> None:
    result = rl_sentinel.check(function, budget=4, **options)
    assert result.ok, result
    assert {f.code for f in result.findings} <= {"MSK001"}, result  # contested by design
    assert [v.outcome for v in result.verdicts if v.law == "REF001"] == ["holds"]


@pytest.mark.parametrize(
    ("function", "options"),
    slow_after(
        8,
        [
            (own.class_settings_least, _PPO),
            (_TRAINER.swapped, _GRPO),
            (own.normalizing, _PPO),
            (own.cispo_with_gradient, _CISPO),
            (own.dr_grpo_by_lengths, _DR_GRPO),
            (own.helper_of_the_largest, _GRPO),
            (own.helper_twice_divided, _GRPO),
            (own.of_mean_ratios, _WHOLE),
            (own.by_group, _BATCH),
            (own.by_batch, _ADVANTAGE),
            (own.one_prompt_inverted, _ONE),
            (own.size_of_default_inverted, _ADVANTAGE),
            (own.unnormalized, {"stage": "logprob"}),
            (own.truncated_sampling_of_the_largest, _GRPO),
            (own.unused_penalty, _GRPO),
            (own.unused_bonus, _PPO),
            (own.equal_ranges, _GRPO),
            (own.unused_clip, {"stage": "value-loss", "algorithm": "ppo"}),
            (own.undiscounted, {"stage": "advantage", "algorithm": "gae"}),
            (_TRAINER.undiscounted, {"stage": "advantage", "algorithm": "gae"}),
            (_TRAINER.swapped_equals, _GRPO),
            (own.Forgetful().loss, _GRPO),
            (own.mean_of_all, _MEAN),
            (own.literal_of_gains_only, _GRPO),
            (own.even_prompts, {"stage": "advantage", "algorithm": "dr_grpo"}),
            (own.first_two_prompts, {"stage": "advantage", "algorithm": "dr_grpo"}),
            (own.max_rl_with_other_sign, {"stage": "advantage", "algorithm": "maxrl"}),
            (own.likelihood_with_other_sign, {"stage": "policy-loss", "algorithm": "negative log-likelihood"}),
            (own.normalizing_with_other_sign, _PPO),
            (own.entropy_of_constant_weights, {"stage": "entropy"}),
        ],
    ),
)
def test_their_faults_are_found(function: Any, options: dict[str, Any]) -> None:
    assert {f.code for f in rl_sentinel.check(function, laws=["REF001"], **options).faults} == {"REF001"}


@pytest.mark.slow
@pytest.mark.parametrize("function", [own.one_prompt, own.one_prompt_listed, own.one_prompt_by_token])
def test_how_many_prompts_a_call_has_must_be_stated(function: Any) -> None:
    result = rl_sentinel.check(function, budget=2, **_ADVANTAGE)
    assert (result.ok, result.faults) == (False, ()), result
    assert 'reward[K]"} for one prompt, "reward[B]" for several' in result.errored[0]


@pytest.mark.slow
def test_several_prompts_that_are_mixed_are_a_fault() -> None:
    result = rl_sentinel.check(own.one_prompt, budget=2, bind={"rewards": "reward[B]"}, **_ADVANTAGE)
    assert {"GRP001", "REF001"} <= {f.code for f in result.faults}


def test_a_deviation_of_the_batch_is_named() -> None:
    result = rl_sentinel.check(own.by_batch, budget=2, laws=["REF001"], **_ADVANTAGE)
    assert any('claims={"deviation-of": "batch"}' in note for note in result.notes)


def test_a_group_size_in_the_code_is_reported() -> None:
    result = rl_sentinel.check(own.size_of_global, budget=2, laws=["REF001"], **_ADVANTAGE)
    assert (
        "every prompt has 4 adjacent responses, a number that the code holds; "
        'state it with numbers={"group_size": 4}' in result.notes
    )


@pytest.mark.parametrize("options", [{"bind": {"beta": 0.0}}, {"numbers": {"kl_loss_coef": 0.0}}])
def test_a_default_that_the_user_states_is_kept(options: dict[str, Any]) -> None:
    result = rl_sentinel.check(own.unused_penalty, budget=2, laws=["REF001"], **options, **_GRPO)
    assert result.ok, result


def test_numbers_of_an_object_that_hide_their_effect_are_changed_in_the_check_only() -> None:
    result = rl_sentinel.check(_TRAINER.undiscounted, stage="advantage", algorithm="gae", laws=["REF001"], budget=2)
    assert "gamma is set to 0.9 in the check, so that its effect shows" in result.notes
    assert _TRAINER.gamma == 1.0


def test_a_loss_of_policy_and_critic_is_not_compared() -> None:
    result = rl_sentinel.check(own.with_value_loss, budget=2, **_PPO)
    assert (result.ok, result.faults) == (False, ())
    assert "has no value loss, but the loss has one" in result.errored[0]


def test_a_width_as_the_constant_of_dr_grpo_is_noted() -> None:
    result = rl_sentinel.check(own.dr_grpo_by_width, budget=2, laws=["REF001"], **_DR_GRPO)
    assert any("the loss divides by the width of the batch" in note for note in result.notes)


def test_equal_rewards_of_a_group_must_cancel() -> None:
    result = rl_sentinel.check(own.ones_for_equal_rewards, laws=["REF001"], **_ADVANTAGE)
    assert [f.code for f in result.faults] == ["REF001"]


def test_a_result_without_a_gradient_is_noted() -> None:
    result = rl_sentinel.check(own.without_gradient, stage="logprob", laws=["REF001"], budget=2)
    assert result.notes == ["the result of the function has no gradient, as for an old policy or a metric"]


def test_an_error_of_shapes_is_no_refusal() -> None:
    result = rl_sentinel.check(own.resized, budget=2, bind={"rewards": "reward[B]"}, **_ADVANTAGE)
    assert not result.ok
    assert "the function raised ValueError: operands could not be broadcast together" in result.errored[0]


@pytest.mark.parametrize(
    ("function", "bind", "path"),
    [
        (own.one_prompt_of_dict, {}, "batch.rewards"),
        (own.one_prompt_of_rows, {}, "samples.reward"),
        (own.one_prompt, {"rewards": "reward"}, "rewards"),
    ],
)
def test_the_proposed_statement_works(function: Any, bind: dict[str, str], path: str) -> None:
    (reason,) = rl_sentinel.check(function, budget=2, laws=["REF001"], bind=bind, **_ADVANTAGE).errored
    assert f'bind={{"{path}": "reward[K]"}}' in reason
    assert rl_sentinel.check(function, budget=2, laws=["REF001"], bind={path: "reward[K]"}, **_ADVANTAGE).ok
