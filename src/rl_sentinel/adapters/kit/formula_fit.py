"""Compare a user's function with its claimed formula, on small batches on which different numbers matter."""

import math

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.layout_trial import domain_probe
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.advantage_normalization import SETTING
from rl_sentinel.formulas.algorithms import advantages_of, returns_of
from rl_sentinel.search.claimed_formulas import counted, references
from rl_sentinel.search.comparison import places

#: Log-ratios between the usual bounds of a clip range, and beyond the usual ceilings, in nats.
_LOG_RATIOS = (-3.0, -1.5, -0.6, -0.3, -0.15, -0.05, 0.05, 0.15, 0.22, 0.3, 0.6, 1.5, 2.0, 3.0)

#: Log-ratios to the reference at which the estimators of a KL differ by more than rounding, in nats.
_FAR = (-1.5, 0.75, 1.25, -0.5, 2.0, -1.0, 0.25)

#: Relative and absolute difference up to which results are equal.
NEAR = 1e-4


def probes_of(boundary: Boundary) -> list[Batch]:
    """Batches that distinguish clip ranges: each log-ratio occurs with an advantage of each sign.

    A single batch if the boundary does not read old log-probs and advantages. If the loss normalizes its advantages,
    two of the batches, and the same two with small advantages.
    """
    batch = _far_from_reference(domain_probe(boundary), boundary)
    if not {"old_logprob", "advantage"} <= boundary.reads:
        return [batch]
    many = torch.tensor(_LOG_RATIOS).repeat(2 * batch.mask.numel())
    probes = []
    for start in range(0, 2 * len(_LOG_RATIOS), 5):
        ratios = many[start : start + batch.mask.numel()].reshape(batch.mask.shape)
        sign = 1 if start % 2 else -1
        probe = with_columns(batch, old_logprob=batch.logprob - ratios, advantage=sign * batch.advantage)
        probes.append(probe)
    if SETTING in boundary.settings["default"]:  # small advantages distinguish offsets
        probes = [*probes[:2], *(with_columns(x, advantage=x.advantage / 1000) for x in probes[:2])]
    return probes if boundary.domain is None else [boundary.domain(probe) for probe in probes]


def _far_from_reference(batch: Batch, boundary: Boundary) -> Batch:
    """The batch with a reference far enough from the policy that a KL in the loss exceeds the tolerance."""
    if boundary.stage != "policy-loss" or "ref_logprob" not in boundary.reads:
        return batch
    count = batch.mask.numel()
    ratios = torch.tensor(_FAR).repeat(count)[:count].reshape(batch.mask.shape)
    return with_columns(batch, ref_logprob=batch.logprob - ratios)


def unclipped_probes(boundary: Boundary) -> list[Batch]:
    """Two batches whose ratios are near 1, within any usual clip range; in the second the advantages are small."""
    batch = domain_probe(boundary)
    ratios = torch.linspace(-0.03, 0.03, batch.mask.numel()).reshape(batch.mask.shape)
    probes = [
        with_columns(batch, old_logprob=batch.logprob - ratios, advantage=batch.advantage / scale)
        for scale in (1, 1000)
    ]
    return probes if boundary.domain is None else [boundary.domain(probe) for probe in probes]


def distance_to_reading(boundary: Boundary, name: str, value: Tensor, batch: Batch, settings: Settings) -> float:
    """The largest difference between an output and the nearest reading of the formula.

    Only positions at which the formula applies are compared. The difference is relative where the expected number is
    larger than 1. It is infinite if no reading can be compared.
    """
    readings, where = _readings(boundary, name, batch, settings)
    actual = value.detach().double()[where] if where.dim() else value.detach().double()
    least = math.inf
    for expected in readings.values():
        wide = expected.unsqueeze(1).expand(batch.mask.shape) if expected.dim() == 1 and where.dim() == 2 else expected
        compared = wide.detach()[where] if where.dim() else wide.detach()
        if actual.shape == compared.shape and bool((actual - compared).isfinite().all()):
            gap = (actual - compared).abs() / compared.abs().clamp(min=1)
            least = min(least, float(gap.max()) if gap.numel() else 0.0)
    return least


def _readings(boundary: Boundary, name: str, batch: Batch, settings: Settings) -> tuple[dict[str, Tensor], Tensor]:
    if boundary.stage == "advantage":
        formula = returns_of if name == "returns" else advantages_of
        return formula(boundary, batch, settings), places(boundary.outputs[name], batch, batch.live)
    return dict(references(boundary, name, batch, settings)), counted(boundary, name, batch)
