# Corrections of verl/trainer/ppo/v1/trainer_base.py (0.9.1): a method of which an expression is replaced.
# - The metrics of lengths get the configured limits: columns here are as wide as the longest row of the batch.

from replaced import replaced

_CALL = "use_critic=self.use_critic"
_LIMITS = "prompt_limit=self.config.data.max_prompt_length, response_limit=self.config.data.max_response_length"

PPOTrainer._compute_metrics = replaced(
    PPOTrainer,
    "_compute_metrics",
    {f"compute_data_metrics(batch=metrics_batch, {_CALL}": f"compute_data_metrics(batch=metrics_batch, {_CALL}, {_LIMITS}"},
)
