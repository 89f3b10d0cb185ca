# Corrections of verl/utils/megatron/optimizer.py (0.9.1): a function of which an expression is replaced.
# - The betas of Adam are passed to Megatron.

import sys

from replaced import replaced

_RATE = '"lr": optim_config.lr,'
_BETAS = '"adam_beta1": optim_config.betas[0], "adam_beta2": optim_config.betas[1],'

init_megatron_optim_config = replaced(
    sys.modules[__name__], "init_megatron_optim_config", {_RATE: f"{_RATE} {_BETAS}"}
)
