# Corrections of skyrl/backends/skyrl_train/workers/megatron/megatron_worker.py (0.3.0): a method without one of its lines.
# - A request keeps the gradients of the requests before it; the optimizer's step clears them.

from replaced import replaced

MegatronPolicyWorkerBase.forward_backward = replaced(
    MegatronPolicyWorkerBase, "forward_backward", {"chunk.zero_grad_buffer()": "pass"}
)
