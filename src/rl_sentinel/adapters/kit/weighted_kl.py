"""Detect losses that weight their KL by a ratio of 1, which changes only the gradient."""

from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.layout_trial import domain_probe, logprob_gradient, outputs_on
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import claims
from rl_sentinel.search.claimed_formulas import references
from rl_sentinel.search.claimed_losses import WEIGHTED, of_one_policy

_NEAR = 1e-4


def with_kl_of_gradient(target: Target, boundary: Boundary) -> Boundary:
    """Claim a weighted KL in the boundary if only a formula with this KL fits the function's value and gradient."""
    if not of_one_policy(boundary) or "ref_logprob" not in boundary.reads or _fits(target, boundary):
        return boundary
    definition = claims("its gradient", output_definitions={"loss": WEIGHTED})
    weighted = replace(boundary, claims=boundary.claims | definition)
    return weighted if _fits(target, weighted) else boundary


def _fits(target: Target, boundary: Boundary) -> bool:
    """Whether one reading of the formula fits the function's value and gradient, at log-ratios of both signs."""
    batch, settings = domain_probe(boundary), boundary.settings["default"]
    gaps = torch.linspace(-1.5, 1.0, batch.mask.numel()).reshape(batch.mask.shape)
    batch = with_columns(batch, ref_logprob=batch.logprob + gaps)
    leaf = batch.logprob.double().requires_grad_()
    try:
        value = outputs_on(target, boundary, batch)["loss"]
        slope = logprob_gradient(target, boundary, batch, batch.advantage)
        readings = references(boundary, "loss", with_columns(batch, logprob=leaf), settings).values()
        pairs = [(x.detach(), torch.autograd.grad(x, leaf, retain_graph=True)[0]) for x in readings]
    except Exception:  # noqa: BLE001 - a loss without a gradient is judged by the laws
        return False
    return any(_near(value, x) and _near(slope, y) for x, y in pairs)


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.detach().double(), other, atol=_NEAR, rtol=_NEAR)
