"""A boundary: real code of a target, seen through the neutral batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, Scope

Stage = Literal[
    "reward",
    "normalise",
    "kl",
    "correct",
    "advantage",
    "policy-loss",
    "value-loss",
    "aggregate",
    "batch",
    "metric",
    "config",
    "step",
]


@dataclass(frozen=True, slots=True)
class Output:
    """What one output of a boundary is.

    ``axes`` is ``"B T"``, ``"B"`` or ``""`` (a number for the whole batch), ``quantity`` the name
    by which laws and definitions know it (``"advantage"``, ``"keep"``, ``"kl.k1"``), ``scope`` how
    far the decision reaches that it states, ``over`` the population that it declares.
    """

    axes: str
    unit: str = ""
    quantity: str = ""
    scope: Scope | Literal[""] = ""
    over: Literal["", "live", "all"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Code of a target that is really run.

    ``path`` is the dotted path that is entered (several, joined by ``" -> "``, for a route). ``call``
    takes a batch and settings and hands back tensors in the neutral layout, one per name of
    ``outputs``; a key ``after/<column>`` hands back what the call left in an input that it was
    given converted. ``reads`` are the columns that count; ``writes`` those it claims to change in
    place; ``twins`` the ``path``s that compute the same algorithm.
    """

    path: str
    stage: Stage
    call: Callable[[Batch, Settings], Mapping[str, Tensor]]
    reads: frozenset[str]
    outputs: Mapping[str, Output]
    settings: Mapping[str, Settings] = field(default_factory=lambda: {"default": {}})
    claims: Claims = field(default_factory=Claims)
    writes: frozenset[str] = frozenset()
    twins: tuple[str, ...] = ()
    reach: str = ""


@dataclass(frozen=True, slots=True)
class Unbound:
    """A boundary that was expected and could not be found, imported or bound: it fails loudly."""

    path: str
    stage: Stage
    reason: str
