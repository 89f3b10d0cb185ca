# Corrections of skyrl/backends/skyrl_train/utils/off_policy_correction_utils.py (0.3.0): replaced expressions.
# - Deviation and minimum of the importance ratios are those of trained tokens.

import sys

from replaced import replaced

_TRAINED = "is_ratio[loss_mask.bool()]"

compute_off_policy_correction = replaced(
    sys.modules[__name__],
    "compute_off_policy_correction",
    {
        "(is_ratio * loss_mask).std()": f"({_TRAINED}.std() if loss_mask.sum() > 1 else torch.zeros(()))",
        "(is_ratio * loss_mask).min()": f"({_TRAINED}.min() if loss_mask.any() else torch.zeros(()))",
    },
)
