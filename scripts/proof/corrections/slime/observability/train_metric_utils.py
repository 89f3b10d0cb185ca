# Corrections of slime/observability/train_metric_utils.py (624b824a8).
# - Over ranks, the largest length is the largest of theirs, the smallest the smallest, and a mean counts samples.
# - The KL is a mean over rollouts, as the other columns of tokens are.

import sys

from replaced import replaced

_module = sys.modules[__name__]


def _over_ranks(key, values):
    return max(values) if key.endswith("_max") else min(values) if key.endswith("_min") else sum(values) / len(values)


gather_and_reduce_log_dict = replaced(
    _module, "gather_and_reduce_log_dict", {"sum(values) / dp_size": "_over_ranks(key, values)"}
)
log_multi_turn_data = replaced(
    _module,
    "log_multi_turn_data",
    {
        "lengths.mean().item()": "lengths.sum().item(), len(value)",
        "np.mean(round_number_array)": "np.sum(round_number_array), len(value)",
        ".float().mean().item()": ".float().sum().item(), len(value)",
    },
)
log_rollout_data = replaced(_module, "log_rollout_data", {'"log_probs",\n': '"log_probs",\n"kl",\n'})
