"""Log-probs, entropy and squared probabilities of logits at a temperature, in plain torch."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings


def _shares(batch: Batch, settings: Settings) -> Tensor:
    """Probabilities over the vocabulary at each token, at the temperature; with a gradient to the logits."""
    scaled = batch.logits.double() / float(settings.get("temperature") or 1)
    weights = torch.exp(scaled - scaled.detach().amax(dim=2, keepdim=True))
    return weights / weights.sum(dim=2, keepdim=True)


def _logprob(batch: Batch, settings: Settings) -> Tensor:
    share = _shares(batch, settings)
    chosen = [[share[b, t, int(batch.token[b, t])] for t in range(batch.width)] for b in range(batch.rows)]
    return torch.where(batch.mask, torch.stack([torch.stack(row) for row in chosen]).log(), 0.0)


def _entropy(batch: Batch, settings: Settings) -> Tensor:
    share = _shares(batch, settings)
    possible = torch.where(share > 0, share, 1.0)  # an entry of probability 0 adds 0 to the sum and to the gradient
    return torch.where(batch.mask, -(share * possible.log()).sum(dim=2), 0.0)


def _squares(batch: Batch, settings: Settings) -> Tensor:
    return torch.where(batch.mask, _shares(batch, settings).square().sum(dim=2), 0.0)


#: Algorithm -> values per token, 0 at untrained ones.
OF_LOGITS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "log-prob of the token": _logprob,
    "entropy of the logits": _entropy,
    "sum of squared probabilities": _squares,
}

#: Algorithm -> one number for the batch.
MEANS_OF_LOGITS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "mean entropy of trained tokens at the temperature": lambda batch, settings: _entropy(batch, settings)[
        batch.mask
    ].mean(),
}
