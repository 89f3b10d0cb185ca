# Corrections of areal/infra/remote_inf_engine.py (1.0.4): a method of which a few expressions are replaced.
# - Tokens get the version that was current when their request was sent.

from replaced import replaced

_BUILD = "http_req = self.backend.build_generation_request("

RemoteInfEngine.agenerate = replaced(
    RemoteInfEngine,
    "agenerate",
    {
        _BUILD: f"version = self.get_version()\n        {_BUILD}",
        "version=self.get_version()": "version=version",
        "[self.get_version()] *": "[version] *",
    },
)
