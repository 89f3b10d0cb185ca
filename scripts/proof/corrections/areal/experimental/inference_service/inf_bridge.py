# Corrections of areal/experimental/inference_service/inf_bridge.py (1.0.4): a method with two expressions replaced.
# - Tokens get the version that was current when their request was sent.

from replaced import replaced

_SEND = "data = await self._send_request(http_req)"

InfBridge.agenerate = replaced(
    InfBridge,
    "agenerate",
    {_SEND: f"version = self._version\n        {_SEND}", "[self._version] *": "[version] *"},
)
