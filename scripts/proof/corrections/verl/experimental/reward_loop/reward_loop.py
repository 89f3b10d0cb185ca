# Corrections of verl/experimental/reward_loop/reward_loop.py (0.9.1): a function of which an expression is replaced.
# - Options of sandbox_fusion that the old section does not set keep their defaults.

import sys

from replaced import replaced

_ASSIGNED = "config.reward.sandbox_fusion = config.sandbox_fusion"
_UPDATED = "config.reward.sandbox_fusion.update({k: v for k, v in config.sandbox_fusion.items() if v is not None})"

migrate_legacy_reward_impl = replaced(sys.modules[__name__], "migrate_legacy_reward_impl", {_ASSIGNED: _UPDATED})
