# Corrections of verl/experimental/reward_loop/reward_manager/limited.py (0.9.1): a method of which an expression is replaced.
# - The scorer is chosen by the column that data.reward_fn_key names.

from replaced import replaced

RateLimitedRewardManager.run_single = replaced(
    RateLimitedRewardManager,
    "run_single",
    {'non_tensor_batch["data_source"]': "non_tensor_batch[self.config.data.reward_fn_key]"},
)
