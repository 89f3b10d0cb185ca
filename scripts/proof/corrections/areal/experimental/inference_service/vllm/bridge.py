# Corrections of areal/experimental/inference_service/vllm/bridge.py (1.0.4): a method with one expression replaced.
# - The smallest length, the texts that stop a response and the penalty of frequent tokens are in the request.

from replaced import replaced

_MOST = '"max_tokens": max_new_tokens,'
_ABSENT = """
        "min_tokens": gconfig.min_new_tokens,
        "stop": gconfig.stop,
        "frequency_penalty": gconfig.frequency_penalty,
"""

VLLMBridgeBackend.build_generation_request = replaced(
    VLLMBridgeBackend, "build_generation_request", {_MOST: _MOST + _ABSENT}
)
