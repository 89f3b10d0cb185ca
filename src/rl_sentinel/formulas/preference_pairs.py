"""Pairs of a preferred and a rejected response: row 2i of a batch is preferred to row 2i + 1."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings

#: Log-ratios that differ by less than this are equal, in nats.
TIE = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Preferred and rejected responses: summed log-probs under policy and reference, and numbers of trained tokens.

    ``[n]`` each.
    """

    chosen: Tensor
    rejected: Tensor
    ref_chosen: Tensor
    ref_rejected: Tensor
    chosen_length: Tensor
    rejected_length: Tensor

    @property
    def chosen_ratio(self) -> Tensor:
        """Log-ratio of the policy to the reference, for preferred responses."""
        return self.chosen - self.ref_chosen

    @property
    def rejected_ratio(self) -> Tensor:
        """Log-ratio of the policy to the reference, for rejected responses."""
        return self.rejected - self.ref_rejected


def number(settings: Settings, name: str, default: float = 0.0) -> float:
    """A setting as a number; the default if the setting is absent or None."""
    value = settings.get(name)
    return default if value is None else float(value)


def are_pairs(batch: Batch) -> bool:
    """Whether the rows are pairs of responses, and each response has a trained token."""
    return batch.rows > 0 and batch.rows % 2 == 0 and bool(batch.live.all())


def pairs_of(batch: Batch, settings: Settings, *, reference: bool = True, desensitized: bool = True) -> Pairs:
    """The pairs of a batch; ``tail_weight``, if set, weights the tokens beyond the length of the shorter response.

    Source:
        LD-DPO (arXiv 2409.06411), for the weight of the tail; with ``desensitized`` it applies to the reference too.
    """
    lengths = batch.mask.sum(1)
    shorter = lengths.reshape(-1, 2).amin(1).repeat_interleave(2)
    tail = (batch.mask.cumsum(1) > shorter.unsqueeze(1)) & batch.mask
    weight = torch.where(tail, number(settings, "tail_weight", 1.0), batch.mask.double())
    ref_weight = weight if desensitized else batch.mask.double()

    def summed(column: Tensor, by: Tensor) -> Tensor:
        return (torch.where(batch.mask, column.double(), 0.0) * by).sum(1)

    current = summed(batch.logprob, weight)
    other = summed(batch.ref_logprob, ref_weight) if reference else torch.zeros_like(current)
    return Pairs(current[::2], current[1::2], other[::2], other[1::2], lengths[::2], lengths[1::2])


def mismatched_kl(pairs: Pairs) -> Tensor:
    """KTO's reference point, estimated by the mean log-ratio of all responses; at least 0, and without a gradient."""
    return torch.cat([pairs.chosen_ratio, pairs.rejected_ratio]).mean().detach().clamp(min=0)
