"""Formulas that are accepted only for users' functions: ratios with a ceiling, and means of any column."""

from collections.abc import Callable

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.policy_losses import LOSSES
from rl_sentinel.formulas.value_losses import entropy

#: Name of a reading -> values: a formula may be read in several ways.
Readings = dict[str, Tensor]

#: Columns with a number per token, of which a function may compute the mean.
PER_TOKEN = frozenset(
    {
        "advantage",
        "value",
        "old_value",
        "returns",
        "entropy",
        "logprob",
        "old_logprob",
        "ref_logprob",
        "rollout_logprob",
    }
)


def plain_or_dual_clip(batch: Batch, settings: Settings) -> Readings:
    """The loss of PPO; for a ceiling above 1 also the dual-clip loss, because many call it PPO, too."""
    plain = {"": LOSSES["ppo"](batch, settings)}
    ceiling = float(settings.get("ceiling") or 0)
    return {**plain, "dual clip": LOSSES["dual clip"](batch, settings)} if ceiling > 1 else plain


def plain_or_truncated(batch: Batch, settings: Settings) -> Readings:
    """REINFORCE weighted by the ratio; if the function has a ceiling, also by the ratio clamped to the ceiling."""
    plain = LOSSES["importance sampling"](batch, settings)
    ceiling = float(settings.get("ceiling") or 0)
    ratio = torch.where(batch.mask, batch.logprob.double() - batch.old_logprob.double(), 0.0).exp()
    held = -batch.advantage.double() * torch.where(ratio > ceiling, ceiling, ratio)
    return {"": plain, "truncated": held} if ceiling else {"": plain}


def _advantage_column(batch: Batch, _settings: Settings) -> Readings:
    return {"": batch.advantage.double()}


def aggregated_column(boundary: Boundary, algorithm: str) -> Callable[[Batch, Settings], Readings] | None:
    """The formula of the numbers that an aggregation function receives.

    These are the entropies of its logits if it claims ``entropy``, else the only column per token that it reads. If it
    does not read exactly one and claims no algorithm, they are the advantages. None if it claims another algorithm.
    """
    passed = sorted(boundary.reads & PER_TOKEN)
    if algorithm == "entropy" and "logits" in boundary.reads:
        return lambda batch, _settings: entropy(batch)
    if len(passed) != 1 or (algorithm and passed != [algorithm]):
        return None if algorithm else _advantage_column
    return lambda batch, _settings: {"": getattr(batch, passed[0]).double()}
