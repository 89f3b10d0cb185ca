"""Table of parameter names in frameworks and user code, and the role that each name has."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """The names of a kind of parameter, the batch column that it is by default, and what a user's function is passed.

    A role without ``value`` is not passed to users' functions.
    """

    names: tuple[str, ...]
    column: str = ""
    value: str = ""


#: Role -> its names in frameworks and user code. A name has one role in the whole package.
ROLES: Mapping[str, Role] = {
    "token_rewards": Role(
        (
            *("token_level_rewards", "token_rewards", "token_level_scores", "per_token_rewards", "rewards_per_token"),
            *("token_level_reward", "token_reward", "per_token_reward", "reward_per_token"),
        ),
        value="`[B, T]`, the outcome reward on the last response token",
    ),
    "reward": Role(
        (
            *("reward", "rewards", "score", "scores", "outcome", "outcomes", "outcome_reward", "outcome_rewards"),
            *("sequence_reward", "sequence_rewards", "group_rewards", "rlhf_reward", "rlhf_rewards", "rm_scores"),
            *("reward_score", "reward_scores", "scalar_rewards", "trajectory_rewards", "episode_rewards"),
            *("seq_reward", "seq_rewards"),
        ),
        "reward",
        value="`[B]`, the outcome reward",
    ),
    "rewards_of_functions": Role(
        ("rewards_per_func", "rewards_per_function"),
        value="`[B, 1]`, the outcome reward, as that of one reward function",
    ),
    "mask": Role(
        (
            *("response_mask", "eos_mask", "loss_mask", "mask", "loss_masks", "action_mask", "completion_mask"),
            *("masks", "response_masks", "action_masks", "completion_masks", "completions_mask", "token_mask"),
            *("generated_mask", "generated_masks", "generation_mask", "generation_masks", "gen_mask", "gen_masks"),
            *("assistant_mask", "assistant_masks", "valid_mask", "valid_masks", "target_mask"),
            *("target_masks", "labels_mask"),
            *("token_masks", "response_token_mask", "completion_token_mask", "assistant_token_mask", "resp_mask"),
            *("train_mask", "train_masks", "trainable_mask", "trainable_masks"),
        ),
        "mask",
        value="`[B, T]` bool, True at trained tokens",
    ),
    "group": Role(
        (
            *("index", "uid", "uids", "group", "groups", "group_id", "group_ids", "group_index", "group_idx"),
            *("prompt_id", "prompt_index", "prompt_idx", "prompt_indices", "prompt_group", "prompt_uid", "prompt_uids"),
            *("gid", "gids", "group_indices", "group_labels", "problem_id", "problem_ids", "question_id"),
            *("question_ids", "task_id", "task_ids"),
        ),
        "group",
        value="`[B]` int64, equal for one prompt; `index`, `uid`, `uids`: numpy array of strings, unless annotated",
    ),
    "values": Role(
        ("values", "value", "critic_values", "state_values", "value_estimates"),
        "value",
        value="`[B, T]`, values of the critic before the update",
    ),
    "value_prediction": Role(
        (
            *("vpreds", "value_preds", "new_values", "new_value", "newvalue", "newvalues", "pred_values", "vpred"),
            *("value_pred", "values_pred", "values_new", "curr_values", "current_values"),
        ),
        "value",
        value="`[B, T]`, values of the critic now; `values` beside it are those before the update",
    ),
    "old_value": Role(
        ("old_values", "old_value", "values_old", "prev_values", "old_vpreds"),
        "old_value",
        value="`[B, T]`, values of the critic before the update",
    ),
    "returns": Role(
        ("returns", "return", "value_targets", "target_values", "return_targets", "lambda_returns"),
        "returns",
        value="`[B, T]`",
    ),
    "advantage": Role(
        (
            *("advantages", "full_advantages", "advantage", "adv", "advs"),
            *("token_advantages", "per_token_advantages", "normalized_advantages"),
        ),
        "advantage",
        value="`[B, T]`",
    ),
    "logprob": Role(
        (
            *("log_prob", "log_probs", "logprobs", "logprob", "logp", "logps", "per_token_logps", "action_log_probs"),
            *("new_logprobs", "new_logprob", "new_log_probs", "new_log_prob", "new_logps", "new_logp"),
            *("newlogprob", "newlogprobs", "newlogp", "newlogps"),
            *("policy_logprobs", "policy_log_probs", "policy_logps", "policy_logprob", "policy_logp"),
            *("curr_logprobs", "curr_log_probs", "curr_logps", "cur_logprobs", "cur_log_probs", "cur_logps"),
            *("current_logprobs", "current_log_probs", "current_logps", "pi_logprobs", "pi_log_probs", "pi_logps"),
            *("logprobs_policy", "log_probs_policy", "pi_logp", "log_pi", "logpi", "theta_logprobs"),
            *("theta_logps", "logprobs_new", "log_probs_new"),
            *("logps_new", "logp_new", "token_logprobs", "token_log_probs", "token_logps", "per_token_logprobs"),
            *("per_token_log_probs", "action_logprobs", "completion_logprobs", "completion_logps"),
            *("response_logprobs", "response_log_probs", "response_logps", "trainer_logprobs", "actor_logprobs"),
            *("actor_log_probs", "next_token_logprobs", "local_logprobs"),
        ),
        "logprob",
        value="`[B, T]`, nats, of the current policy",
    ),
    "old_logprob": Role(
        (
            *("old_log_prob", "old_log_probs", "old_logprobs", "old_logprob", "old_logp", "old_logps"),
            *("old_per_token_logps", "old_action_log_probs", "logprobs_old", "log_probs_old", "logp_old"),
            *("b_logprobs", "b_logprob", "mb_logprobs", "oldlogprob", "oldlogprobs", "prev_logprobs", "prev_logps"),
            *("prev_log_probs", "previous_logprobs", "logps_old", "pi_old_logprobs", "pi_old_logps", "old_pi_logprobs"),
            *("old_policy_logprobs", "old_policy_log_probs", "old_policy_logps", "old_token_logprobs"),
            *("old_per_token_logprobs", "old_per_token_log_probs", "logpi_old", "log_pi_old"),
        ),
        "old_logprob",
        value="`[B, T]`, nats, of the policy before the update",
    ),
    "ref_logprob": Role(
        (
            *("ref_logprob", "ref_log_prob", "ref_log_probs", "ref_logprobs", "ref_logp", "ref_logps"),
            *("ref_per_token_logps", "base_action_log_probs", "log_probs_base", "base_log_probs", "logprobs_ref"),
            *("log_probs_ref", "logp_ref", "logps_ref", "logprobs_reference", "log_probs_reference"),
            *("reference_logprobs", "reference_log_probs", "reference_logps"),
            *("reference_policy_logprobs", "ref_policy_logprobs", "ref_policy_log_probs", "ref_policy_logps"),
            *("ref_per_token_logprobs", "ref_per_token_log_probs", "ref_token_logprobs", "ref_action_log_probs"),
            *("pi_ref_logprobs", "pi_ref_logps", "ref_model_logprobs", "base_logprobs", "base_logps", "logpi_ref"),
            *("sft_logprobs", "initial_logprobs"),
        ),
        "ref_logprob",
        value="`[B, T]`, nats, of the reference",
    ),
    "rollout_logprob": Role(
        (
            *("rollout_log_prob", "rollout_log_probs", "rollout_logprobs", "rollout_logprob", "rollout_logps"),
            *("rollout_logp", "rollout_per_token_logps", "sampling_per_token_logps", "sampling_logprobs"),
            *("sampling_logprob", "sampling_log_probs", "sampling_logps", "sampler_logprobs", "sampler_logps"),
            *("inference_logprobs", "inference_log_probs", "inference_logps", "infer_logprobs", "infer_log_probs"),
            *("vllm_logprobs", "vllm_logps", "sglang_logprobs", "generation_logprobs", "generation_log_probs"),
            *("gen_logprobs", "gen_log_probs", "gen_logps", "behavior_logprobs", "behavior_log_probs"),
            *("behavior_logps", "behaviour_logprobs", "behaviour_log_probs", "behaviour_logps", "sampled_logprobs"),
        ),
        "rollout_logprob",
        value="`[B, T]`, nats, of the sampler",
    ),
    "entropy": Role(
        ("entropy", "entropies", "token_entropy", "token_entropies", "per_token_entropy", "per_token_entropies"),
        "entropy",
        value="`[B, T]`, nats, of the current policy",
    ),
    "kl": Role(
        ("kl", "kls", "kl_div", "kl_divergence", "per_token_kl", "per_token_kls", "token_kl", "kl_per_token"),
        value="`[B, T]`, nats, the estimate k1 against the reference; in a loss k3",
    ),
    "logits": Role(
        ("logits", "policy_logits", "lm_logits", "new_logits", "shift_logits", "response_logits", "completion_logits"),
        "logits",
        value="`[B, T, V]`",
    ),
    "token": Role(
        ("token", "tokens", "token_ids", "target_ids", "action_ids", "response_ids", "response_tokens"),
        "token",
        value="`[B, T]`, the tokens that the logits predict",
    ),
    "rollout_weight": Role(("rollout_is_weights",)),
    "pi_squared": Role(("sum_pi_squared", "pi_squared"), "pi_squared"),
    "per_token": Role(
        ("loss_mat", "token_loss", "token_losses", "per_token_loss", "per_token_losses", "losses"),
        "advantage",
        value="`[B, T]`, a number per token",
    ),
    "reward_baseline": Role(("reward_baselines", "reward_baseline"), "reward_baseline", value="`[B]`"),
    "lengths": Role(
        (
            *("lengths", "length", "response_lengths", "response_length", "response_lens", "seq_lens", "seqlens"),
            *("seq_lengths", "completion_lengths", "completion_lens", "resp_lens", "gen_lens"),
        ),
        value="`[B]`, response lengths; `T` if it is annotated as `int`, or accepted only so",
    ),
    "cumulative_lengths": Role(
        ("cu_seqlens", "cu_seq_lens", "cumulative_lengths"), value="`[B + 1]` int32, starts of packed rows"
    ),
    "gamma": Role(("gamma", "discount", "discount_factor"), value="its default, or 0.9, also if the default is 1"),
    "lambda": Role(
        ("lam", "lambd", "lmbda", "lamb", "gae_lambda", "gae_lam", "lambda_", "lambda_gae"),
        value="its default, or 0.8, also if the default is 1",
    ),
    "config": Role(("config", "cfg")),
    "standardise": Role(("norm_adv_by_std_in_grpo", "grpo_norm_by_std")),
    "aggregation": Role(("loss_agg_mode",)),
    "clip": Role(
        (
            *("cliprange", "clip_ratio", "clip_range", "clip_eps", "clip_epsilon", "eps_clip", "ppo_clip"),
            *("clip_param", "clip_coef", "clip", "epsilon_clip", "policy_clip", "ppo_clip_range", "ppo_clip_eps"),
            *("ppo_epsilon", "ppo_eps"),
        ),
        value="its default, or 0.2, to both sides; in a value loss the range of the values",
    ),
    "clip_low": Role(
        (
            *("cliprange_low", "clip_ratio_low", "clip_low", "eps_clip_low", "epsilon_low", "eps_low", "clip_eps_low"),
            *("clip_lower", "clip_lo", "lower_clip", "eps_lower", "epsilon_lower", "eps_lo"),
            *("clip_epsilon_low", "ratio_clip_min"),
        ),
        value="its default, or 0.2",
    ),
    "clip_high": Role(
        (
            *("cliprange_high", "clip_ratio_high", "clip_high", "eps_clip_high", "epsilon_high", "eps_high"),
            *("clip_eps_high", "clip_higher", "clip_upper", "clip_hi", "upper_clip", "eps_upper", "epsilon_upper"),
            *("eps_hi", "clip_epsilon_high", "ratio_clip_max"),
        ),
        value="its default, or 0.28; larger if the default is that of the lower range",
    ),
    "clip_c": Role(("clip_ratio_c", "clip_c", "ceiling", "dual_clip"), value="its default, or 3.0"),
    "ratio_bound": Role(("delta",), value="in a policy loss its default, or 3.0: the largest ratio; unknown elsewhere"),
    "value_clip": Role(
        (
            *("cliprange_value", "value_clip", "clip_range_value", "value_clip_range", "value_clip_eps"),
            *("clip_range_vf", "cliprange_vf", "vf_clip", "vf_clip_range", "vf_clip_param"),
        ),
        value="its default, or 0.5",
    ),
    "kl_weight": Role(
        (
            *("beta", "kl_coef", "kl_coeff", "kl_beta", "kl_loss_coef", "kl_loss_coeff", "kl_loss_weight"),
            *("kl_weight", "kl_coefficient"),
            *("kl_penalty_coef", "kl_penalty_coeff", "kl_penalty_weight", "init_kl_coef", "beta_kl", "lambda_kl"),
        ),
        value="its default, or 0.04, also if the default is 0",
    ),
    "entropy_weight": Role(
        (
            *("entropy_coeff", "entropy_coef", "ent_coef", "ent_coeff", "entropy_weight", "entropy_beta"),
            *("entropy_coefficient",),
            *("entropy_bonus", "entropy_loss_coef", "entropy_loss_coeff", "entropy_loss_weight", "ent_weight"),
        ),
        value="its default, or 0.01, also if the default is 0",
    ),
    "fixed_length": Role(
        ("max_completion_length", "max_response_length", "max_tokens", "max_length", "max_len"),
        value="its default, or 8",
    ),
    "group_size": Role(
        (
            *("num_generations", "n_generations", "generations_per_prompt", "num_generations_per_prompt", "group_size"),
            *("num_samples", "samples_per_prompt", "n_samples_per_prompt", "num_samples_per_prompt"),
            *("num_samples_per_prompt_rollout", "num_rollouts", "n_rollouts", "rollout_n", "rollouts_per_prompt"),
            *("num_rollouts_per_prompt", "n_rollouts_per_prompt", "rollouts_per_example", "num_return_sequences"),
            *("responses_per_prompt", "num_responses_per_prompt", "samples_per_problem", "num_samples_per_problem"),
            *("rollouts_per_problem", "per_prompt"),
            *("completions_per_prompt", "num_completions_per_prompt", "n_per_prompt", "num_per_prompt"),
            *("n_resp_per_prompt", "responses_per_question", "samples_per_group"),
        ),
        value="the number of responses of each prompt; they are adjacent",
    ),
    "prompt_count": Role(
        (
            *("num_prompts", "n_prompts", "num_groups", "n_groups", "num_questions", "n_questions", "num_problems"),
            *("n_problems", "num_prompts_per_batch", "n_prompts_per_batch", "prompts_per_batch"),
        ),
        value="the number of prompts; their responses are adjacent, and no parameter has prompt ids",
    ),
    "strided_group_size": Role(
        ("rloo_k",),
        value="the number of responses of each prompt; they are `G` rows apart, as in TRL's `RLOOTrainer` up to 0.21",
    ),
    "trained_tokens": Role(
        (
            *("num_items_in_batch", "num_items", "num_loss_tokens", "num_action_tokens", "num_valid_tokens"),
            *("num_trained_tokens", "num_trainable_tokens", "num_target_tokens", "num_response_tokens"),
        ),
        value="the number of trained tokens of the batch",
    ),
    "accumulation": Role(
        (
            *("gradient_accumulation_steps", "current_gradient_accumulation_steps", "grad_accumulation_steps"),
            *("grad_accum_steps", "gradient_accum_steps", "accum_steps", "accumulation_steps"),
            *("num_accumulation_steps",),
            *("grad_acc_steps", "accumulate_grad_batches", "grad_accum", "gradient_accumulation"),
            *("num_micro_batches", "num_microbatches", "n_micro_batches", "n_microbatches"),
        ),
        value="1, also if it has another default: one step holds the whole batch",
    ),
    "temperature": Role(("temperature", "tau_pos"), value="its default, or 1.0; 0.7 for logits"),
    "negative_temperature": Role(("negative_temperature", "tau_neg"), value="its default, or 1.05"),
    "epsilon": Role(
        ("epsilon", "eps"), value="its default, or 1e-6; in a loss, the clip range of both sides: its default, or 0.2"
    ),
}
