# Corrections of areal/experimental/inference_service/sglang/bridge.py (1.0.4): a method with one expression replaced.
# - The smallest length of a response is in the request.

from replaced import replaced

_MOST = '"max_new_tokens": max_new_tokens,'

SGLangBridgeBackend.build_generation_request = replaced(
    SGLangBridgeBackend,
    "build_generation_request",
    {_MOST: f'{_MOST}\n        "min_new_tokens": gconfig.min_new_tokens,'},
)
