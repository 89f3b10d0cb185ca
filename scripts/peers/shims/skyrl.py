"""SkyRL's estimators, KL, losses, reductions, corrections and entropy, computed by ours."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from peers.peer import Peer
from peers.shims import skyrl_corrections, skyrl_losses
from peers.shims.columns import facts, outcome, rewards_to_go, whitened
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.signal import controller, kl
from rl_sentinel.signal.advantage import gae, grpo, maxrl, reinforce_plus_plus, rloo
from rl_sentinel.signal.logprob import logprobs_and_entropy
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.reduce import aggregate, row_counts, row_means

_KLS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3, "abs": kl.absolute}


class _Steered:
    """A controller with the names that SkyRL gives to its parts."""

    def __init__(self, first: controller.Fixed | controller.Adaptive) -> None:
        self.now = first

    @property
    def value(self) -> float:
        """The coefficient, in reward units per nat."""
        return self.now.coefficient

    def update(self, current: float, n_steps: int) -> None:
        """Take the next one's place."""
        self.now = self.now.after(current, samples=n_steps)


def _adaptive(init_kl_coef: float, target: float, horizon: float) -> _Steered:
    return _Steered(controller.Adaptive(init_kl_coef, target=target, horizon=horizon))


def _fixed(kl_coef: float) -> _Steered:
    return _Steered(controller.Fixed(kl_coef))


def _kl(
    log_probs: Tensor, log_probs_base: Tensor, loss_mask: Tensor | None = None, kl_estimator_type: str = "k3"
) -> Tensor:
    return _KLS[kl_estimator_type](log_probs, log_probs_base, mask=facts(loss_mask, log_probs))


def _group(estimator: Callable[..., Tensor], **named: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """An estimator of groups; ``named`` are its numbers, and how SkyRL calls them."""
    defaults = {"epsilon": 1e-6, "grpo_norm_by_std": True}

    def ours(token_level_rewards: Tensor, response_mask: Tensor, index: Any, **more: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        numbers = {mine: more.get(theirs, defaults[theirs]) for mine, theirs in named.items()}
        return outcome(estimator, token_level_rewards, response_mask, index, **numbers)

    return ours


def _reinforce_plus_plus(
    token_level_rewards: Tensor, response_mask: Tensor, gamma: float, **_more: object
) -> tuple[Tensor, Tensor]:
    mask = response_mask.bool()
    found = reinforce_plus_plus.advantages(token_level_rewards, mask=mask, discount=gamma, epsilon=1e-8)
    return found, rewards_to_go(token_level_rewards, mask=mask, discount=gamma)


def _gae(
    token_level_rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float, lambd: float, **_more: object
) -> tuple[Tensor, Tensor]:
    mask = response_mask.bool()
    found = gae.advantages(token_level_rewards, values, mask=mask, discount=gamma, decay=lambd)
    return whitened(found, mask), torch.where(mask, found + values, torch.zeros_like(values))


def _reduce_loss(loss: Tensor, loss_mask: Tensor | None) -> Tensor:
    return aggregate(loss, mask=facts(loss_mask, loss), aggregation=skyrl_losses.SUM)


def _scaled(  # noqa: PLR0913 - SkyRL's signature
    advantages: Tensor,
    loss_mask: Tensor,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: int,
    prompt_boundaries: list[tuple[int, int]] | None = None,
) -> Tensor:
    mask = loss_mask.bool()
    if loss_reduction == "token_mean":
        return advantages / aggregation("token-mean", mask=mask).denominator
    if loss_reduction == "sequence_mean":
        rows = aggregation("sequence-mean-token-mean", mask=mask).denominator
        return advantages / (rows * row_counts(mask=mask).clamp(min=1).unsqueeze(1))
    if loss_reduction == "seq_mean_token_sum_norm":
        return advantages / aggregation("token-sum", mask=mask, length=max_seq_len).denominator
    if loss_reduction == "token_mean_legacy":
        cuts = [(at, at + micro_batch_size) for at in range(0, len(mask), micro_batch_size)]
    elif loss_reduction == "prompt_mean":
        if prompt_boundaries is None:
            raise ValueError("prompt_mean is given without prompt_boundaries, expected where each prompt's rows are")
        cuts = prompt_boundaries
    else:
        raise ValueError(f"Invalid loss reduction type: {loss_reduction}")
    parts = [advantages[a:b] / aggregation("token-mean", mask=mask[a:b]).denominator for a, b in cuts]
    return torch.cat(parts) / len(cuts)


def _entropy(logits: Tensor, attention_mask: Tensor | None = None, **_more: object) -> Tensor:
    token = torch.zeros(logits.shape[:-1], dtype=torch.long)
    where = facts(attention_mask, token)
    return logprobs_and_entropy(logits, token, mask=where, temperature=1.0)[1]


def _masked_mean(tensor: Tensor, mask: Tensor | None, dim: int | None = None) -> Tensor:
    where = facts(mask, tensor)
    if dim is not None:
        return row_means(tensor, mask=where)
    one = aggregation("token-mean", mask=where.reshape(1, -1))
    return aggregate(tensor.reshape(1, -1), mask=where.reshape(1, -1), aggregation=one)


_UTILS = "skyrl.backends.skyrl_train.utils"
_PPO = f"{_UTILS}.ppo_utils"

PEER = Peer(
    framework=FRAMEWORK,
    revision="a9564572e",
    ours={
        f"{_PPO}.AdaptiveKLController": _adaptive,
        f"{_PPO}.FixedKLController": _fixed,
        f"{_PPO}.compute_approx_kl": _kl,
        f"{_PPO}.compute_gae_advantage_return": _gae,
        f"{_PPO}.compute_grpo_outcome_advantage": _group(
            grpo.advantages, standardize="grpo_norm_by_std", epsilon="epsilon"
        ),
        f"{_PPO}.compute_maxrl_advantage": _group(maxrl.advantages),
        f"{_PPO}.compute_rloo_outcome_advantage": _group(rloo.advantages),
        f"{_PPO}.compute_reinforce_plus_plus_outcome_advantage": _reinforce_plus_plus,
        f"{_PPO}.reduce_loss": _reduce_loss,
        f"{_PPO}.apply_loss_reduction_to_advantages_minibatch": _scaled,
        **{f"{_PPO}.{name}": ours for name, ours in skyrl_losses.OURS.items()},
        **{f"{_UTILS}.off_policy_correction_utils.{name}": ours for name, ours in skyrl_corrections.OURS.items()},
        f"{_UTILS}.torch_utils.chunked_entropy_from_logits": _entropy,
        f"{_UTILS}.torch_utils.masked_mean": _masked_mean,
    },
    named=("PolicyLossRegistry", "AdvantageEstimatorRegistry", "compute_off_policy_correction"),
)
