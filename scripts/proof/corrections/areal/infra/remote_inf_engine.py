# Corrections of areal/infra/remote_inf_engine.py (1.0.4): methods of which a few expressions are replaced.
# - Tokens get the version that was current when their request was sent.
# - The teacher's log-prob of a token stands at the position that predicts it, where the loss reads it.

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

_READ = "torch.tensor(\n                token_logps, device=out.device, dtype=out.dtype\n            )"

RemoteInfEngine.compute_logp = replaced(
    RemoteInfEngine,
    "compute_logp",
    {
        "target_len=target_len": "target_len=len(token_ids) - 1",
        "parse_score_response(payload, target_len)": "parse_score_response(payload, len(token_ids) - 1)",
        "len(token_logps) != target_len": "len(token_logps) != len(token_ids) - 1",
        f"out[i, write_idx] = {_READ}": f"out[i, write_idx - 1] = {_READ}[write_idx - 1]",
    },
)
