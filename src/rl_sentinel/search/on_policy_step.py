"""On-policy cases without KL or entropy terms, for which a policy loss must have the gradient of REINFORCE."""

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, Settings, with_batch
from rl_sentinel.core.expectations import Equal, Expectation, Within
from rl_sentinel.search.transforms import on_policy


def regularizers_off(boundary: Boundary, setting: str) -> Settings:
    """Overrides that set each coefficient of a KL, an entropy or a penalty on the log-ratio to 0.

    A coefficient is a setting of the boundary named ``kl...coef(f)``, ``entropy...coef(f)`` or ``penalty``.
    """
    return {name: 0.0 for name in boundary.settings.get(setting, {}) if _is_coefficient(name)}


def _is_coefficient(name: str) -> bool:
    of_term = name.startswith(("kl", "entropy")) and name.endswith(("coef", "coeff"))
    return of_term or name == "penalty"


def first_step(boundary: Boundary, case: Case) -> Case:
    """The case with all policies equal and no regularizer."""
    override = {**case.override, **regularizers_off(boundary, case.setting)}
    fresh = with_batch(case, on_policy(case.batch))
    return Case(fresh.batch, case.setting, override, case.draw, case.seed)


def row_constant(batch: Batch) -> Batch:
    """Give every token of a row the same advantage: the first advantage of the row, or 1 if it is 0."""
    first = batch.advantage[:, :1]
    nonzero = torch.where(first == 0, torch.ones_like(first), first)
    return with_columns(batch, advantage=nonzero.expand(batch.advantage.shape).clone())


def reinforce(batch: Batch, gradient: Tensor, *, together: bool) -> Iterator[Expectation]:
    """Expectations that a ``[B, T]`` gradient is minus the advantage, times a positive number.

    Each row has a separate number; with ``together``, all rows have the same number.
    """
    weight = torch.where(batch.mask, batch.advantage, torch.zeros_like(batch.advantage))
    if together:
        at = weight.abs().argmax().expand(batch.rows, 1)
        largest, slope = weight.flatten()[at], gradient.flatten()[at]
    else:
        at = weight.abs().argmax(dim=1, keepdim=True)
        largest, slope = weight.gather(1, at), gradient.gather(1, at)
    ratio = torch.where(largest == 0, torch.zeros_like(slope), -slope / largest)
    count = "for the whole batch" if together else "per row"
    reason = f"all policies are equal, so the gradient must be minus the advantage, times one factor {count}"
    scale = gradient.abs().max().item()
    yield Equal("gradient of logprob", -weight * ratio, gradient, batch.mask, scale, reason=reason)
    reason = "all policies are equal, so the gradient must point against the advantage"
    counted = (largest != 0) & batch.live.unsqueeze(1)
    name = "minus the gradient divided by the advantage"
    ratio, counted = ratio.squeeze(1), counted.squeeze(1)
    yield Within(name, ratio, torch.zeros_like(ratio), None, counted, strict=True, reason=reason)
