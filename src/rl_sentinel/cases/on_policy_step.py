"""The first step on fresh samples: what a loss is asked there, with nothing else in it."""

import torch

from rl_sentinel.cases.transforms import on_policy
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, Settings, with_batch


def regularisers_off(boundary: Boundary, setting: str) -> Settings:
    """Overrides that set each coefficient of a KL or an entropy to 0.

    A coefficient is a setting of the boundary named ``kl...coef`` or ``entropy...coef``.
    """
    settings = boundary.settings.get(setting, {})
    return {
        name: 0.0 for name in settings if name.startswith(("kl", "entropy")) and name.endswith(("coef", "coeff"))
    }


def first_step(boundary: Boundary, case: Case) -> Case:
    """The case with all policies equal and no regulariser."""
    override = dict(case.override) | regularisers_off(boundary, case.setting)
    fresh = with_batch(case, on_policy(case.batch))
    return Case(fresh.batch, case.setting, override, case.draw, case.seed)


def row_constant(batch: Batch) -> Batch:
    """Each row's advantage is its first one, or 1 where that is 0; the same at each token."""
    first = batch.advantage[:, :1]
    plain = torch.where(first == 0, torch.ones_like(first), first)
    return with_columns(batch, advantage=plain.expand(batch.advantage.shape).clone())
