"""Table of parameter names in frameworks and user code, and the role that each name has."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """The names of a kind of parameter, its default batch column, and a description of the passed value.

    A role without ``value`` is not passed to users' functions.
    """

    names: tuple[str, ...]
    column: str = ""
    value: str = ""


#: Role -> its names in frameworks and user code. A name has one role in the whole package.
ROLES: Mapping[str, Role] = {
    "token_rewards": Role(
        ("token_level_rewards", "token_rewards", "token_level_scores", "per_token_rewards"),
        value="`[B, T]`, the outcome reward on the last response token",
    ),
    "reward": Role(
        ("reward", "rewards", "score", "scores", "outcome", "outcomes", "sequence_rewards", "rm_scores"),
        "reward",
        value="`[B]`, the outcome reward",
    ),
    "rewards_of_functions": Role(
        ("rewards_per_func", "rewards_per_function"),
        value="`[B, 1]`, the outcome reward, as that of one reward function",
    ),
    "mask": Role(
        (
            *("response_mask", "eos_mask", "loss_mask", "loss_masks", "action_mask", "completion_mask"),
            *("assistant_masks", "generated_mask", "valid_mask", "train_mask", "token_mask", "mask", "masks"),
        ),
        "mask",
        value="`[B, T]` bool, True at trained tokens",
    ),
    "group": Role(
        (
            *("index", "uid", "uids", "group", "groups", "group_id", "group_index", "prompt_uid", "prompt_index"),
            *("gid", "gids", "group_ids", "prompt_group", "group_labels", "problem_id", "problem_ids"),
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
        ("vpreds", "vpred", "new_values", "newvalue", "newvalues", "value_preds", "v_pred"),
        "value",
        value="`[B, T]`, values of the critic now; `values` beside it are those before the update",
    ),
    "old_value": Role(
        ("old_values", "prev_values", "old_vpreds"),
        "old_value",
        value="`[B, T]`, values of the critic before the update",
    ),
    "returns": Role(
        ("returns", "return", "rets", "lambda_returns", "value_targets", "target_values", "return_targets"),
        "returns",
        value="`[B, T]`",
    ),
    "advantage": Role(
        ("advantages", "advantage", "adv", "advs", "token_advantages"),
        "advantage",
        value="`[B, T]`",
    ),
    "logprob": Role(
        (
            *("log_prob", "log_probs", "logprobs", "logp", "logps", "per_token_logps", "action_log_probs"),
            *("new_logprobs", "policy_logps", "curr_log_probs", "pi_logprobs", "newlogprob", "newlogprobs"),
            *("newlogp", "newlogps"),
        ),
        "logprob",
        value="`[B, T]`, nats, of the current policy",
    ),
    "old_logprob": Role(
        (
            *("old_log_prob", "old_log_probs", "old_logprobs", "old_per_token_logps", "prev_logprobs"),
            *("logprobs_old", "b_logprobs", "b_logprob", "mb_logprobs", "oldlogprob", "oldlogprobs"),
        ),
        "old_logprob",
        value="`[B, T]`, nats, of the policy before the update",
    ),
    "ref_logprob": Role(
        (
            *("ref_log_prob", "ref_log_probs", "ref_logprobs", "ref_per_token_logps", "base_action_log_probs"),
            *("reference_logps", "logprobs_ref"),
        ),
        "ref_logprob",
        value="`[B, T]`, nats, of the reference",
    ),
    "rollout_logprob": Role(
        (
            *("rollout_log_probs", "rollout_logprobs", "sampling_per_token_logps", "inference_logprobs"),
            *("vllm_logprobs", "generation_logprobs", "behavior_logprobs", "sampled_logprobs"),
        ),
        "rollout_logprob",
        value="`[B, T]`, nats, of the sampler",
    ),
    "entropy": Role(
        ("entropy", "entropies", "token_entropy", "per_token_entropy"),
        "entropy",
        value="`[B, T]`, nats, of the current policy",
    ),
    "kl": Role(
        ("kl", "kls", "kl_div", "per_token_kl", "token_kl"),
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
    "gamma": Role(("gamma", "discount", "discount_factor"), value="its default; 0.9 if it has none, or if it is 1"),
    "lambda": Role(
        ("lam", "lambd", "lmbda", "lamb", "gae_lambda", "gae_lam", "lambda_", "lambda_gae"),
        value="its default; 0.8 if it has none, or if it is 1",
    ),
    "config": Role(("config", "cfg")),
    "standardize": Role(("norm_adv_by_std_in_grpo", "grpo_norm_by_std")),
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
        value="its default, or 0.28; a larger number if it equals the lower range",
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
        value="its default; 0.04 if it has none, or if it is 0",
    ),
    "entropy_weight": Role(
        (
            *("entropy_coeff", "entropy_coef", "ent_coef", "ent_coeff", "entropy_weight", "entropy_beta"),
            *("entropy_coefficient",),
            *("entropy_bonus", "entropy_loss_coef", "entropy_loss_coeff", "entropy_loss_weight", "ent_weight"),
        ),
        value="its default; 0.01 if it has none, or if it is 0",
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
            *("n_resp_per_prompt", "responses_per_question", "samples_per_group", "num_gens", "group_sz"),
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
