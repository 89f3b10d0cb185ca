"""TRL: the boundaries of its online, preference, supervised and distillation trainers."""

from collections.abc import Iterator

from rl_sentinel.adapters.framework import Framework, boundaries_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import optional_names, packages, ppo
from rl_sentinel.core.boundary import Boundary, Unbound

#: The modules with boundaries, in the order in which they are bound.
MODULES = """
scoring unscored_rewards rollout_metrics completions_table distillation_table checkpoints samplers rollout_batch
sampler_ranks sampling paged_sampling generation_defaults inline_prompts inline_logs engine_log_probs engine_weights
early_losses
early_steps losses evaluated_losses gmpo dppo sdpo sdpo_scoring teacher_prompts self_distillation ssd minillm
server_distillation
weighted_distillation async_scoring async_options async_loss async_router token_budget rollout_queue async_metrics
async_distillation log_probs updates preferences reward_model reward_head kto kto_pairs bco pair_accumulation
precomputed evaluated_references reference_policies pair_ranks pair_evaluation pair_logits logit_metrics supervised
supervised_parts smoothed_labels virtual_tokens vision_inputs router_loss early_supervised dataset_preparation
truncated_rows default_limits collated_labels packing reply_collator sleeping_engine engine_options
nash_md self_play online_dpo online_dpo_loop online_dpo_rows a2po templates chatml tool_counts tool_loop tool_support
training_templates template_variants response_parsing log_averages distillation distillation_steps buffered_rollouts
buffered_steps fused_distillation liger_losses wrapped_losses universal_logits merged_tokens ppo ppo_loop rloo_loop
"""

_of_modules = boundaries_of(__name__, MODULES)


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    ppo.restore_former_names()
    with optional_names.defined_names():
        yield from _of_modules(target)


FRAMEWORK = Framework(
    name="trl",
    package="trl",
    distribution="trl",
    boundaries=_boundaries,
    light=packages.light,
    installation=packages.installation,
    environment={"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
)
