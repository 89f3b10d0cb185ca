"""Metrics of trained tokens (entropy, accuracy, mean logits and log-probs), one number per batch."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.preference_pairs import are_pairs

#: If the two largest logits differ by less than this, rounding decides which one is the largest.
TIE = 1e-4


def _entropy(batch: Batch, _settings: Settings) -> Tensor:
    logits = batch.logits[batch.mask].double()
    chances = logits.log_softmax(-1)
    return -(chances.exp() * chances).sum(-1).mean()


def _negative_logprob(batch: Batch, _settings: Settings) -> Tensor:
    return -batch.logprob[batch.mask].double().mean()


def _share_of_best(batch: Batch, rows: slice) -> Tensor:
    mask = batch.mask[rows]
    logits = batch.logits[rows][mask].double()
    best = logits.topk(2, -1).values
    right = (logits.argmax(-1) == batch.token[rows][mask]).double()
    return torch.where(best[:, 0] - best[:, 1] < TIE, torch.nan, right).mean()


def _accuracy(batch: Batch, _settings: Settings) -> Tensor:
    """The share of trained tokens that are the most probable token; NaN if rounding decides for a token."""
    return _share_of_best(batch, slice(None))


def _accuracy_of_preferred(batch: Batch, _settings: Settings) -> Tensor:
    """The share of the trained tokens of preferred responses that are the most probable token.

    NaN if the rows are not pairs, or if rounding decides for a token.
    """
    return _share_of_best(batch, slice(None, None, 2)) if are_pairs(batch) else torch.tensor(torch.nan)


def _mean_logit(side: int) -> Callable[[Batch, Settings], Tensor]:
    """Make the formula: the mean logit at trained tokens of preferred (``side`` 0) or rejected (1) responses.

    NaN if the rows are not pairs.
    """

    def mean(batch: Batch, _settings: Settings) -> Tensor:
        if not are_pairs(batch):
            return torch.tensor(torch.nan)
        return batch.logits[side::2][batch.mask[side::2]].double().mean()

    return mean


#: Name of a metric -> one number for the batch, over trained tokens.
TOKEN_METRICS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "entropy of trained tokens": _entropy,
    "negative log-prob of trained tokens": _negative_logprob,
    "accuracy of trained tokens": _accuracy,
    "accuracy of preferred responses": _accuracy_of_preferred,
    "mean logit of preferred responses": _mean_logit(0),
    "mean logit of other responses": _mean_logit(1),
}
