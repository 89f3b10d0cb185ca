"""Names of parameters that are made of known words."""

import pytest

from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.parameter_words import role_of_words


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("logprob", "lp logps_list pi_theta_log_probs cur_token_logp policy_completion_logps log_p_new"),
        ("old_logprob", "lp_old old_policy_lps prev_actor_log_probs logprobs_before"),
        ("ref_logprob", "ref_lps sft_model_log_probs completion_ref_logps initial_policy_logp"),
        ("rollout_logprob", "gen_token_logprobs vllm_policy_logps logp_behavior"),
        ("mask", "valid_response_mask loss_token_mask trained_masks is_response is_trained_token"),
        ("token_rewards", "reward_per_token token_scores"),
        ("reward", "total_rewards all_rewards final_score raw_sequence_rewards rewards_list"),
        ("group", "question_uids problem_idx group_id_list example_ids"),
        ("group_size", "num_trajs_per_prompt answers_per_question n_gens_per_example"),
        ("logits", "model_logits current_policy_logits"),
        ("advantage", "advs_list whitened_advantages full_adv"),
        ("returns", "rets discounted_returns"),
        ("value_prediction", "new_vals predicted_values critic_values_new"),
        ("old_value", "prev_vals old_critic_values"),
        ("entropy", "policy_entropy token_entropies"),
        ("kl", "kl_per_token token_kls"),
    ],
)
def test_words_in_any_order(role: str, names: str) -> None:
    """A role is found without each of its names in a table."""
    assert {name: role_of_words(name) for name in names.split()} == dict.fromkeys(names.split(), role)


@pytest.mark.parametrize(
    "name",
    [
        *("old_ref_logps", "logprob_sum", "chosen_logps", "logp_ratio", "sampled_token_logprobs"),
        *("reward_model", "reward_fn", "format_reward", "mean_reward", "is_correct", "tokens_per_prompt"),
        *("attention_mask", "prompt_mask", "padding_mask", "sequence_mask", "mask_ratio"),
        *("prompt_ids", "question_ids_mask", "token_ids", "group_size", "norm_adv", "value_clip", "next_values"),
        *("return_type", "kl_coef", "entropy_coef", "clip", "per", "old", ""),
    ],
)
def test_other_words_are_not_guessed(name: str) -> None:
    """A statistic, a factor, a flag or the tokens of a prompt are something else than the column."""
    assert role_of_words(name) == ""


def test_the_table_agrees() -> None:
    """A name of the table has no other role by its words."""
    known = {name: role for role, about in ROLES.items() for name in about.names}
    assert {name: role_of_words(name) for name in known if role_of_words(name) not in ("", known[name])} == {}
