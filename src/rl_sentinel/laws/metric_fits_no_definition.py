"""MET001 metric-fits-no-definition.

What it says:
    A logged quantity equals, on each case, at least one accepted definition of it, recomputed from
    the raw batch: per token, or as a mean over tokens, over rows or over groups, whichever way.

Why it matters:
    A number that fits no definition is no measurement. Thresholds, comparisons between runs and
    adaptive controllers that use it follow an artefact of the code.

A boundary that breaks it:
    >>> import torch
    >>> kl, mask = torch.tensor([[0.5, 0.5], [1.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    >>> round(((kl * mask).mean(dim=1) / mask.sum(dim=1)).mean().item(), 3)  # divided twice
    0.375
    >>> round((kl * mask).sum().item() / mask.sum().item(), 3)
    0.667

Where it does not apply:
    Quantities that the table of definitions does not know, or whose inputs the boundary does not
    read. Cases with no trained token.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from torch import Tensor

from rl_sentinel.cases.comparison import magnitude, places
from rl_sentinel.cases.definitions import definitions, is_defined
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, Settings, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation


def _settings(boundary: Boundary, case: Case) -> Settings:
    return {**boundary.settings.get(case.setting, {}), **case.override}


def _applies(boundary: Boundary) -> str:
    families = boundary.settings.values()
    known = any(is_defined(o, boundary.reads, s) for o in boundary.outputs.values() for s in families)
    return "" if known else "no output is a quantity whose definitions are known"


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _distance(one: Tensor, other: Tensor, where: Tensor) -> float:
    gap = (one.double() - other)[where]
    return gap.abs().nan_to_num(nan=float("inf")).max().item() if gap.numel() else 0.0


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    boundary, batch, seen = ask.boundary, case.batch, ask(case)
    settings = _settings(boundary, case)
    for name, output in boundary.outputs.items():
        if not is_defined(output, boundary.reads, settings):
            continue
        value, where = seen.values[name], places(output, batch, batch.live)
        accepted = definitions(output, batch, boundary.reads, settings)
        nearest = min(accepted, key=lambda n: _distance(value, accepted[n], where))
        largest = max(v.abs().nan_to_num().max().item() for v in accepted.values())
        scale = magnitude(batch, boundary.reads) + largest
        story = f"{name} fits none of {len(accepted)} definitions; the nearest is {nearest}"
        yield Relation(name, accepted[nearest], value, where, scale, story=story)


LAW = Law(
    code="MET001",
    name="metric-fits-no-definition",
    stages=frozenset({"kl", "policy-loss", "value-loss", "metric"}),
    applies=_applies,
    vary=_vary,
    relate=_relate,
)
