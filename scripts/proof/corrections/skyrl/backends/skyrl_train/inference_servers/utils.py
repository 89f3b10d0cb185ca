# Correction of skyrl/backends/skyrl_train/inference_servers/utils.py (0.3.0).
# - Chunked prefill is off where the configuration says so.


_with_default_prefill = build_vllm_cli_args


def build_vllm_cli_args(cfg):
    args = _with_default_prefill(cfg)
    args.enable_chunked_prefill = cfg.generator.inference_engine.enable_chunked_prefill
    return args
