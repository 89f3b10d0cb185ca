"""MET001 metric-fits-no-definition: a metric equals no accepted definition of its name.

What it says:
    A logged quantity equals one accepted definition of it, recomputed from the raw batch: per token, or as a mean over
    tokens, rows or groups. It must be the same definition on all cases. If the boundary claims which two policies are
    compared, which KL estimator is used, or which definition applies, only definitions that fit the claim are accepted.
    A share that only the loss defines must lie between 0 and 1.

Why it matters:
    A number that fits no definition measures nothing. Thresholds, comparisons between runs and
    adaptive controllers that use it follow an artefact of the code.

A boundary that breaks it:
    >>> import torch
    >>> kl, mask = torch.tensor([[0.5, 0.5], [1.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    >>> round(((kl * mask).mean(dim=1) / mask.sum(dim=1)).mean().item(), 3)  # divided twice
    0.375
    >>> round((kl * mask).sum().item() / mask.sum().item(), 3)
    0.667

How to fix it:
    Log the numbers before they are shaped, clipped or multiplied by a mask, and divide by their own count.
    ``rl_sentinel.signal.metrics`` has the accepted definitions, such as ``rl_sentinel.signal.metrics.mean_kl``.

Where it does not apply:
    Quantities that the table of definitions does not know, or whose inputs the boundary does not
    read. Cases with no trained token. A user's function that claims an algorithm: REF001 compares it with that formula.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Equal, Expectation, Within
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.formulas.allowed import kind
from rl_sentinel.formulas.metric_definitions import KL, definitions, is_defined
from rl_sentinel.formulas.shares import is_share
from rl_sentinel.search.comparison import magnitude, places
from rl_sentinel.search.formula_reading import as_claimed, fitting
from rl_sentinel.search.on_policy_step import row_constant


def _applies(boundary: Boundary) -> str:
    if boundary.own and boundary.claims.algorithm:
        return "REF001 compares it with the formula that it claims"
    families = boundary.settings.values()
    known = any(is_defined(o, boundary.reads, s) or is_share(o) for o in boundary.outputs.values() for s in families)
    return "" if known else "no output is a quantity whose definitions are known"


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _accepted(boundary: Boundary, output: Output, case: Case, only: str = "") -> tuple[dict[str, Tensor], Tensor]:
    batch = case.batch
    where = places(output, batch, batch.live)
    if not bool(batch.live.any()):
        return {}, where
    found = definitions(output, batch, boundary.reads, boundary.settings_of(case), only)
    name = next(n for n, o in boundary.outputs.items() if o is output)
    return as_claimed(boundary, name, {n: x for n, x in found.items() if _as_claimed(boundary, output, n)}), where


def _as_claimed(boundary: Boundary, output: Output, definition: str) -> bool:
    """Whether a definition matches the claims about the two compared policies and about the KL estimator."""
    name = next(n for n, o in boundary.outputs.items() if o is output)
    pair = value_of(boundary.claims.output_pairs.get(name))
    kl = value_of(boundary.claims.kl) if kind(output.quantity) == "kl" else None
    estimators = [f"{n} of " for n in KL.get(kl or "", {})]
    return (pair or "") in definition and (not estimators or any(e in definition for e in estimators))


def _share(name: str, output: Output, observed: Tensor) -> Iterator[Expectation]:
    """Expect that a share of tokens, rows or groups lies between 0 and 1."""
    if is_share(output):
        reason = "a share lies between 0 and 1 by any definition"
        yield Within(name, observed, torch.zeros_like(observed), torch.ones_like(observed), scale=1.0, reason=reason)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary = ask.boundary
    if boundary.stage == "policy-loss" and value_of(boundary.claims.scope) == "sequence":
        case = with_batch(case, row_constant(case.batch))
    batch, seen = case.batch, ask(case)
    settings = boundary.settings_of(case)
    for name, output in boundary.outputs.items():
        if not is_defined(output, boundary.reads, settings):
            yield from _share(name, output, seen.values[name])
            continue
        nearest, among = fitting(ask, case, name, partial(_accepted, boundary, output))
        accepted, where = _accepted(boundary, output, case, nearest)
        if nearest not in accepted:
            continue
        scale = magnitude(batch, boundary.reads) + accepted[nearest].abs().nan_to_num().max().item()
        others = f", the nearest of {among} known definitions; none fits all batches" if among > 1 else ""
        reason = f"its definition is {nearest!r}{others}"
        yield Equal(name, accepted[nearest], seen.values[name], where, scale, reason=reason)


LAW = Law(
    code="MET001",
    name="metric-fits-no-definition",
    stages=frozenset({"kl", "policy-loss", "value-loss", "metric"}),
    claims=("algorithm", "kl", "output_definitions", "output_pairs", "scope"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
