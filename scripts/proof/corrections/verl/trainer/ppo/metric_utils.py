# Corrections of verl/trainer/ppo/metric_utils.py (0.9.1): a function of which a few expressions are replaced.
# - Shares of responses and prompts at the limit are of the configured limits, where the caller has them.

import sys

from replaced import replaced

compute_data_metrics = replaced(
    sys.modules[__name__],
    "compute_data_metrics",
    {
        "use_critic: bool = True)": "use_critic: bool = True, prompt_limit=None, response_limit=None)",
        'batch.batch["prompts"].shape[-1]': 'prompt_limit or batch.batch["prompts"].shape[-1]',
        'batch.batch["responses"].shape[-1]': 'response_limit or batch.batch["responses"].shape[-1]',
    },
)
