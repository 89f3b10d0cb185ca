"""Inputs that the remedies for verl and SkyRL build from the framework's arguments; imports no framework."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.signal import metrics
from rl_sentinel.signal.align import spread
from rl_sentinel.signal.reduce import Aggregation, Mode, live_rows, row_sums

#: verl's name of an aggregation -> ours; verl's ``norm`` divides by a length as well.
MODES: Mapping[str, Mode] = {
    "token-mean": "token-mean",
    "token-sum": "token-sum",
    "seq-mean-token-sum": "sequence-mean-token-sum",
    "seq-mean-token-sum-norm": "sequence-mean-token-sum",
    "seq-mean-token-mean": "sequence-mean-token-mean",
}


@dataclass(frozen=True, slots=True, eq=False)
class Responses:
    """Inputs of an outcome estimator: reward, prompt, whether it is live, and length in tokens of each response.

    ``by_deviation`` is True if advantages are divided by a standard deviation.
    """

    reward: Tensor
    group: Tensor
    live: Tensor
    length: Tensor
    by_deviation: bool

    @property
    def arguments(self) -> dict[str, Tensor]:
        """The keyword arguments that every estimator of the remedies takes."""
        return {"group": self.group, "live": self.live}


def responses(token_rewards: Tensor, *, mask: Tensor, index: object, by_deviation: bool) -> Responses:
    """Inputs from token rewards, whose sum per row is the outcome; ``index`` labels prompts by numbers or strings.

    Example:
        >>> import torch
        >>> from rl_sentinel.remedies.framework_inputs import responses
        >>> one = responses(torch.ones(2, 2), mask=torch.ones(2, 2).bool(), index=["b", "a"], by_deviation=True)
        >>> one.reward, one.group
        (tensor([2., 2.]), tensor([1, 0]))
    """
    group = torch.from_numpy(np.unique(np.asarray(index).astype(str), return_inverse=True)[1]).to(mask.device)
    reward = row_sums(token_rewards, mask=torch.ones_like(mask))
    return Responses(reward, group, mask.any(dim=1), mask.sum(dim=1), by_deviation)


def per_token(row: Tensor, *, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Advantages and returns ``[B, T]`` from one number per row; they are equal, because the reward is an outcome."""
    advantages = spread(row, mask=mask)
    return advantages, advantages


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """The inputs of a policy loss: columns, aggregation, and the framework's configuration."""

    logprob: Tensor
    old_logprob: Tensor
    advantage: Tensor
    mask: Tensor
    aggregation: Aggregation
    config: Any

    def loss(self, function: Callable[..., Tensor], **numbers: float) -> Tensor:
        """The value of a loss of the signal library on these inputs; ``numbers`` are its other arguments."""
        arguments: dict[str, Any] = {"mask": self.mask, **numbers, "aggregation": self.aggregation}
        return function(self.logprob, self.old_logprob, self.advantage, **arguments)

    def clipped(self, *, clip_low: float, clip_high: float) -> float:
        """The share of trained tokens whose ratio is clipped, for the log."""
        columns = self.logprob.detach(), self.old_logprob, self.advantage
        return metrics.clip_fraction(*columns, mask=self.mask, clip_low=clip_low, clip_high=clip_high).tokens.item()

    def moved(self) -> float:
        """The mean of k1 from the old policy to the current one over trained tokens, for the log, in nats."""
        return metrics.mean_kl(self.old_logprob, self.logprob.detach(), mask=self.mask).k1.item()


def aggregation_of(mask: Tensor, mode: str, **counts: Any) -> Aggregation:  # noqa: ANN401 - numbers, or None
    """The aggregation for verl's ``loss_agg_mode`` and its counts over the whole mini-batch.

    verl averages gradients over ranks afterwards, so the denominator is divided by the number of ranks (1 without
    ``dp_size``). Another count that is None is taken from the micro-batch, as in verl.

    Args:
        mask: True on trained tokens of the micro-batch.
        mode: ``loss_agg_mode``.
        counts: verl's ``batch_num_tokens``, ``global_batch_size``, ``loss_scale_factor`` and ``dp_size``.

    Raises:
        ValueError: if there is no such mode.

    Example:
        >>> import torch
        >>> from rl_sentinel.remedies.framework_inputs import aggregation_of
        >>> aggregation_of(torch.ones(2, 3).bool(), "token-mean", batch_num_tokens=12, dp_size=2)
        Aggregation(mode='token-mean', denominator=6.0)
    """
    if mode not in MODES:
        raise ValueError(f"loss_agg_mode is {mode!r}, expected one of {', '.join(MODES)}")
    tokens, rows = counts.get("batch_num_tokens"), counts.get("global_batch_size")
    number = 1.0
    if mode == "token-mean":
        number = float(mask.sum() if tokens is None else tokens)
    elif mode.startswith("seq-mean"):
        number = float(live_rows(mask).sum() if rows is None else rows)
    if mode.endswith("norm"):
        number *= counts.get("loss_scale_factor") or mask.shape[1]
    return Aggregation(MODES[mode], max(number, 1.0) / (counts.get("dp_size") or 1))
