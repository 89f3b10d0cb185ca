"""verl: its registered estimators, GAE, the vanilla loss, rollout correction, log-probs."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from benchmarks.ours import CLIP, DECAY, DISCOUNT, EPSILON, HIGH, HIGHEST, LOW
from benchmarks.peers.loading import audited
from benchmarks.tensors import Inputs, gradient

RELEASE = "verl==0.9.1"


def load() -> None:
    """Make it importable."""
    audited(RELEASE)


def _core() -> Any:  # noqa: ANN401 - the peer's module
    return import_module("verl.trainer.ppo.core_algos")


def _outcome(name: str, **more: Any) -> Callable[[Inputs], Tensor]:  # noqa: ANN401 - the estimator's own
    def call(x: Inputs) -> Tensor:
        found: Tensor = getattr(_core(), name)(x.token_reward, x.floats, index=x.uid, **more)[0]
        return found

    return call


def _gae(x: Inputs) -> Tensor:
    found: Tensor = _core().compute_gae_advantage_return(x.token_reward, x.value, x.floats, DISCOUNT, DECAY)[0]
    return found


@cache
def _actor() -> Any:  # noqa: ANN401 - the peer's configuration
    kind = import_module("verl.workers.config").ActorConfig
    return kind(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=CLIP)


def _ppo(x: Inputs) -> Tensor:
    leaf = x.logprob.clone().requires_grad_()
    loss, _metrics = _core().compute_policy_loss_vanilla(x.old_logprob, leaf, x.wide, x.floats, "token-mean", _actor())
    return gradient(loss, leaf)


def _correct(x: Inputs) -> tuple[Tensor, Tensor]:
    helper = import_module("verl.trainer.ppo.rollout_corr_helper")
    bounds = f"{torch.tensor(LOW).exp().item()}_{torch.tensor(HIGH).exp().item()}"
    proto, mask, _metrics = helper.compute_rollout_correction_and_rejection_mask(
        x.old_logprob,
        x.rollout_logprob,
        x.floats,
        rollout_is="token",
        rollout_is_threshold=HIGHEST,
        rollout_rs="seq_mean_k1",
        rollout_rs_threshold=bounds,
    )
    return proto.batch["rollout_is_weights"], mask.any(dim=1)


def _score(logits: Tensor, token: Tensor) -> Tensor:
    functional = import_module("verl.utils.torch_functional")
    leaf = logits.detach().requires_grad_()
    return gradient(functional.logprobs_from_logits(leaf, token).sum(), leaf)


def _score_with_entropy(logits: Tensor, token: Tensor) -> Tensor:
    functional = import_module("verl.utils.torch_functional")
    leaf = logits.detach().requires_grad_()
    first, second = functional.logprobs_from_logits(leaf, token), functional.entropy_from_logits(leaf)
    return gradient((first.sum() - 0.01 * second.sum()), leaf)


PARTS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "GRPO": {
        "loop": _outcome("compute_grpo_outcome_advantage", epsilon=EPSILON),
        "vectorized": _outcome("compute_grpo_vectorized_outcome_advantage", epsilon=EPSILON),
    },
    "RLOO": {
        "loop": _outcome("compute_rloo_outcome_advantage"),
        "vectorized": _outcome("compute_rloo_vectorized_outcome_advantage"),
    },
    "Pass@k": {"loop": _outcome("compute_grpo_passk_outcome_advantage", config={"norm_adv_by_std_in_grpo": False})},
    "REINFORCE++ baseline": {"loop": _outcome("compute_reinforce_plus_plus_baseline_outcome_advantage")},
    "GAE": {"loop over tokens": _gae},
    "PPO loss and gradient": {"eager": _ppo},
    "rollout correction": {"eager": _correct},
    "log-probs and gradient": {"eager": _score},
    "log-probs, entropy and gradient": {"eager": _score_with_entropy},
}
