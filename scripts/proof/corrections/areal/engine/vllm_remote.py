# Corrections of areal/engine/vllm_remote.py (1.0.4): a method of which a few expressions are replaced.
# - The smallest length of a response is in the request.

from replaced import replaced

_MOST = '"max_tokens": gconfig.max_new_tokens,'

VLLMBackend.build_generation_request = replaced(
    VLLMBackend,
    "build_generation_request",
    {_MOST: f'{_MOST}\n        "min_tokens": gconfig.min_new_tokens,'},
)
