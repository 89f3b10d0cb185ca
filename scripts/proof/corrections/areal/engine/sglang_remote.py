# Corrections of areal/engine/sglang_remote.py (1.0.4): a method of which a few expressions are replaced.
# - The smallest length of a response is in the request.

from replaced import replaced

_MOST = '"max_new_tokens": gconfig.max_new_tokens,'

SGLangBackend.build_generation_request = replaced(
    SGLangBackend,
    "build_generation_request",
    {_MOST: f'{_MOST}\n        "min_new_tokens": gconfig.min_new_tokens,'},
)
