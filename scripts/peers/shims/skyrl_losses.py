"""SkyRL's policy losses, which are sums: it scales advantages by its denominators beforehand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from peers.shims.columns import facts
from rl_sentinel.signal import covariance, metrics
from rl_sentinel.signal.correction import bounds, weights
from rl_sentinel.signal.loss import (
    cispo,
    clip_cov,
    dppo_kl,
    dppo_tv,
    dual_clip,
    gspo,
    importance_sampling,
    kl_cov,
    ppo,
    sapo,
)
from rl_sentinel.signal.reduce import Aggregation

SUM = Aggregation("token-sum", 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What SkyRL hands to a loss."""

    logprob: Tensor
    old: Tensor
    advantage: Tensor
    mask: Tensor
    rollout: Tensor | None
    config: Any

    @property
    def clips(self) -> dict[str, Any]:
        """The two clips of PPO."""
        return {"clip_low": self.config.eps_clip_low, "clip_high": self.config.eps_clip_high}

    def loss(self, function: Callable[..., Tensor], *, old: Tensor | None = None, **numbers: Any) -> Tensor:  # noqa: ANN401
        """One of ours, with its numbers."""
        before = self.old if old is None else old
        return function(self.logprob, before, self.advantage, mask=self.mask, **numbers, aggregation=SUM)


def _in_its_form(ours: Callable[[Asked], tuple[Tensor, Mapping[str, float]]]) -> Callable[..., Any]:
    """A loss in SkyRL's form. SkyRL's own composition of corrections, whose parts are ours, comes before it."""

    def asked(  # noqa: PLR0913 - SkyRL's signature
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        config: Any,  # noqa: ANN401 - SkyRL's configuration
        loss_mask: Tensor | None = None,
        rollout_logprobs: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        from skyrl.backends.skyrl_train.utils import off_policy_correction_utils  # noqa: PLC0415 - there when it is run

        told: dict[str, float] = {}
        mask = facts(loss_mask, log_probs)
        if rollout_logprobs is not None:
            weight, told, kept = off_policy_correction_utils.compute_off_policy_correction(
                old_log_probs, rollout_logprobs, mask, config.off_policy_correction
            )
            advantages, mask = advantages if weight is None else advantages * weight, kept.bool()
        found, more = ours(Asked(log_probs, old_log_probs, advantages, mask, rollout_logprobs, config))
        return found, {"clip_ratio": 0.0, **told, **more}

    return asked


def _ppo(x: Asked) -> tuple[Tensor, Mapping[str, float]]:
    cut = metrics.clip_fraction(x.logprob, x.old, x.advantage, mask=x.mask, **x.clips).tokens.item()
    if x.config.policy_loss_type == "dual_clip":
        return x.loss(dual_clip.loss, **x.clips, ceiling=x.config.clip_ratio_c), {"clip_ratio": cut}
    return x.loss(ppo.loss, **x.clips), {"clip_ratio": cut}


def _cispo(x: Asked) -> tuple[Tensor, Mapping[str, float]]:
    chosen = x.config.cispo
    old: Any = x.rollout if getattr(chosen, "cispo_anchor", "old") == "rollout" else x.old
    clips: dict[str, Any] = {"clip_low": chosen.cispo_eps_clip_low, "clip_high": chosen.cispo_eps_clip_high}
    ratio = weights.token_weights(x.logprob, old, mask=x.mask)
    held = bounds.clipped(ratio, mask=x.mask, low=1 - clips["clip_low"], high=1 + clips["clip_high"])
    plain, cut = (metrics.statistics(each, mask=x.mask) for each in (ratio, held))
    told = {"mean": plain.mean, "max": plain.most, "min": plain.least, "clamped_mean": cut.mean}
    share = {"clip_ratio": metrics.share(ratio != held, mask=x.mask).item()}
    return x.loss(cispo.loss, old=old, **clips), share | {f"cispo/ratio_{k}": v.item() for k, v in told.items()}


def _dppo(x: Asked) -> tuple[Tensor, Mapping[str, float]]:
    chosen = x.config.dppo
    ours = {"binary_tv": dppo_tv.loss, "binary_kl": dppo_kl.loss}[chosen.dppo_type]
    numbers: dict[str, Any] = {"clip_low": chosen.delta_low, "clip_high": chosen.delta_high, "ceiling": inf}
    return x.loss(ours, old=x.rollout, **numbers), {}


def _clip_cov(x: Asked) -> tuple[Tensor, Mapping[str, float]]:
    chosen, apart = x.config.clip_cov, covariance.covariances(x.logprob, x.advantage, mask=x.mask)
    numbers = {"low": chosen.clip_cov_lb, "high": chosen.clip_cov_ub, "share": chosen.clip_ratio}
    drawn = covariance.drawn_between(apart, mask=x.mask, **numbers, generator=torch.default_generator)
    share = metrics.share(drawn, mask=x.mask).item()
    return x.loss(clip_cov.loss, chosen=drawn, **x.clips), {"clip_ratio": share}


def _kl_cov(x: Asked) -> tuple[Tensor, Mapping[str, float]]:
    chosen, apart = x.config.kl_cov, covariance.covariances(x.logprob, x.advantage, mask=x.mask)
    most = covariance.largest(apart, mask=x.mask, share=chosen.kl_cov_frac)
    return x.loss(kl_cov.loss, chosen=most, penalty=chosen.ppo_kl_coef), {}


def _sapo(x: Asked) -> tuple[Tensor, Mapping[str, float]]:
    chosen = x.config.sapo
    return x.loss(sapo.loss, temperature=chosen.tau_pos, negative_temperature=chosen.tau_neg), {}


OURS: dict[str, Callable[..., Any]] = {
    "ppo_policy_loss": _in_its_form(_ppo),
    "sapo_policy_loss": _in_its_form(_sapo),
    "gspo_policy_loss": _in_its_form(lambda x: (x.loss(gspo.loss, **x.clips), {})),
    "compute_policy_loss_cispo": _in_its_form(_cispo),
    "dppo_policy_loss": _in_its_form(_dppo),
    "compute_policy_loss_clip_cov": _in_its_form(_clip_cov),
    "compute_policy_loss_kl_cov": _in_its_form(_kl_cov),
    "importance_sampling_loss": _in_its_form(lambda x: (x.loss(importance_sampling.loss), {})),
}
