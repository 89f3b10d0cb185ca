"""The KL penalty per token."""

import torch
from torch import Tensor


def kl_penalty(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """The estimator k3, ``[B, T]``, in nats."""
    log_ratio = ref_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio
