"""Adapter for verl: rewards, advantages, KL, rollout correction, losses, data transport, metrics, configuration."""

from rl_sentinel.adapters.framework import Framework, boundaries_of
from rl_sentinel.adapters.verl import packages, server_fakes
from rl_sentinel.adapters.verl.entry_points import in_words_of_release

#: The modules with boundaries, in the order in which they are bound; the last six let vLLM seem to be installed.
MODULES = """
server_clients agent_loop padded_images tool_turns tool_messages tool_images async_requests rewards trajectory_scores
reward_model reward_sources scorers interactions advantages dispatch trajectories balance batch_sizes transport
worker_dispatch data_loader data_limits generation_batches training_run queue_run training_update separate_trainers
rollout_versions engine_weights bucketed_weights queue_trainer staleness response_mask kl correction
importance_weights losses engine training_worker actor_update update_epochs distillation end_tokens woken_servers
data_parallel megatron megatron_weights megatron_log_probs megatron_passes megatron_update head_losses log_probs
engine_passes queue_passes queue_correction role_passes row_images logit_functions critic logged_norms learning_rates
worker_rates logged_rates optimizers overflowing_steps sft sft_loop conversations single_turn aggregation metrics
metric_aggregators validation validation_run queue_metrics window_metrics expert_load router_replay diagnostics
mismatch configuration engine_configuration legacy_settings listed_options worker_rollouts rollout_servers
greedy_baselines adapter_requests engine_caches launched_servers engine_defaults run_tokenizers fp8_weights
recurrent_layers scored_rows rollout_records update_requests server_constructors tool_creation
code_scorer worker_tokenizers prompt_positions model_processors
"""

FRAMEWORK = Framework(
    name="verl",
    package="verl",
    distribution="verl",
    version_file="version/version",
    boundaries=in_words_of_release(boundaries_of(__name__, MODULES)),
    light=packages.light,
    installation=packages.installation,
    earlier=packages.EARLIER,
    fakes={"tensorrt_llm.llmapi": server_fakes.tensorrt_llm},
    environment={"VERL_FORCE_DEVICE": "cpu"},
)
