"""Losses of Nash-MD and A*-PO, per token ``[B, T]``; a gradient flows to the log-probs."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings


def nash_md(batch: Batch, settings: Settings) -> dict[str, Tensor]:
    """REINFORCE; the advantage is the win probability minus 1/2, minus ``beta`` times the log-ratio to the reference.

    ``reward`` is the probability that the response is preferred to a response of the mixture policy. Neither the reward
    nor the log-ratio has a gradient. One reading uses the log-ratio of each token, the other the log-ratio of the whole
    response.

    Source:
        Nash-MD, arXiv 2312.00886.
    """
    logprob, beta = batch.logprob.double(), float(settings.get("beta") or 0)
    log_ratio = torch.where(batch.mask, logprob - batch.ref_logprob.double(), 0.0).detach()
    gain = (batch.reward.double() - 0.5).unsqueeze(1)
    ratios = {"of each token": log_ratio, "of the response": log_ratio.sum(1, keepdim=True)}
    return {n: torch.where(batch.mask, (beta * ratio - gain) * logprob, 0.0) for n, ratio in ratios.items()}


def regressed_advantage(batch: Batch, settings: Settings) -> dict[str, Tensor]:
    """The squared difference of advantage and ``beta`` times log-ratio of a response, split equally over its tokens.

    The advantage is ``reward`` minus ``reward_baseline``, an estimate of the value of the optimal policy at the prompt.

    Source:
        A*-PO, arXiv 2505.20686.
    """
    beta = float(settings.get("beta") or 0)
    log_ratio = torch.where(batch.mask, batch.logprob.double() - batch.ref_logprob.double(), 0.0).sum(1)
    distance = beta * log_ratio - (batch.reward.double() - batch.reward_baseline.double())
    shares = batch.mask / batch.mask.sum(1, keepdim=True).clamp(min=1)
    return {"": distance.square().unsqueeze(1) * shares}


#: Algorithm -> loss per token, by reading.
SELF_PLAY: Mapping[str, Callable[[Batch, Settings], dict[str, Tensor]]] = {
    "nash-md": nash_md,
    "regressed advantage": regressed_advantage,
}
