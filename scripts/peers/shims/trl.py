"""TRL's log-probs, entropy, off-policy sequence masks and masked moments, computed by ours."""

import torch
from torch import Tensor

from peers.peer import Peer
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.signal import metrics
from rl_sentinel.signal.correction.trust import off_policy_sequences_kept
from rl_sentinel.signal.logprob import logprobs, logprobs_and_entropy
from rl_sentinel.signal.normalization import Normalization, normalized

#: What TRL and its tests import and must really run; ``datasets`` is stood in for.
LIGHT = """
accelerate==1.15.0
annotated-doc==0.0.7
anyio==4.16.0
fsspec==2026.9.0
h11==0.16.0
httpcore2==2.16.2
httpx2==2.16.2
huggingface_hub==2.4.0
idna==3.20
packaging==26.3
psutil==7.2.2
PyYAML==6.0.3
regex==2026.11.15
safetensors==0.8.0
tokenizers==0.23.3
tqdm==4.70.1
transformers==5.23.0
truststore==0.10.5
"""


def _logprobs(logits: Tensor, index: Tensor) -> Tensor:
    single = index.dim() == logits.dim() - 1
    each = index.unsqueeze(-1) if single else index
    mask = torch.ones(logits.shape[:-1], dtype=torch.bool)
    found = torch.stack([logprobs(logits, x, mask=mask, temperature=1.0) for x in each.unbind(-1)], dim=-1)
    return (found.squeeze(-1) if single else found).to(logits.dtype)


def _entropy(logits: Tensor, chunk_size: int = 128) -> Tensor:  # noqa: ARG001 - blocks of ours are its own choice
    token = torch.zeros(logits.shape[:-1], dtype=torch.long)
    mask = torch.ones_like(token, dtype=torch.bool)
    return logprobs_and_entropy(logits, token, mask=mask, temperature=1.0)[1].to(logits.dtype)


def _off_policy_mask(
    advantages: Tensor,
    per_token_logps: Tensor,
    sampling_per_token_logps: Tensor,
    mask: Tensor,
    off_policy_threshold: float,
) -> Tensor:
    told = per_token_logps, sampling_per_token_logps, advantages.squeeze(1)
    keep = off_policy_sequences_kept(*told, mask=mask.bool(), threshold=off_policy_threshold)
    return keep.to(mask.dtype).unsqueeze(1)


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return metrics.statistics(values, mask=mask.bool()).mean


def _masked_var(values: Tensor, mask: Tensor) -> Tensor:
    return metrics.statistics(values, mask=mask.bool()).deviation.square()


def _masked_whiten(values: Tensor, mask: Tensor) -> Tensor:
    by = Normalization(mean="batch", deviation="batch", leave_one_out=False, biased=False, epsilon=1e-8)
    flat, live = values.flatten(), mask.bool().flatten()
    found = normalized(flat, group=torch.zeros_like(live, dtype=torch.long), live=live, by=by)
    return found.view(values.shape)


PEER = Peer(
    framework=Framework(name="trl", package="trl", boundaries=lambda _target: iter(()), light=lambda _version: LIGHT),
    revision="v1.9.0",
    ours={
        "trl.trainer.utils.selective_log_softmax": _logprobs,
        "trl.trainer.utils.entropy_from_logits": _entropy,
        "trl.trainer.grpo_trainer.GRPOTrainer.get_off_policy_mask": _off_policy_mask,
        "trl.experimental.ppo.ppo_trainer.masked_mean": _masked_mean,
        "trl.experimental.ppo.ppo_trainer.masked_var": _masked_var,
        "trl.experimental.ppo.ppo_trainer.masked_whiten": _masked_whiten,
    },
)
