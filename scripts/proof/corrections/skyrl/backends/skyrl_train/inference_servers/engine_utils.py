# Corrections of skyrl/backends/skyrl_train/inference_servers/engine_utils.py (0.3.0): a function with one expression
# replaced.
# - The penalty of repetition is in the request.

import sys

from replaced import replaced

_LEAST = '"min_p": sampling_params.min_p,'

get_vllm_sampling_params = replaced(
    sys.modules[__name__],
    "get_vllm_sampling_params",
    {_LEAST: f'{_LEAST}\n        "repetition_penalty": sampling_params.repetition_penalty,'},
)
