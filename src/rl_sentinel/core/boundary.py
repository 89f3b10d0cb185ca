"""A boundary: real code of a target, seen through the neutral batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, Scope
from rl_sentinel.core.codec import Codec, Form, Inputs
from rl_sentinel.core.layout import Axis

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
    "parallel",
]

#: How results of the cuts of a repeated step become one: their sum, mean or last, their rows in order, or the sum over
#: micro-batches and mean over ranks, as of gradients that data-parallel training averages.
Join = Literal["sum", "mean", "last", "rows", "rank-mean"]

#: The population that a number declares to count.
Population = Literal["", "live", "rows", "all"]

#: What a step is repeated for.
Cut = Literal["rank", "micro_batch"]


@dataclass(frozen=True, slots=True)
class Output:
    """What one output of a boundary is.

    ``axes`` is ``"B T"``, ``"B"`` or ``""`` (a number for the whole batch), ``quantity`` the name
    by which laws and definitions know it (``"advantage"``, ``"keep"``, ``"kl.k1"``), ``scope`` how
    far the decision reaches that it states, ``over`` the population that it declares: live rows, all rows with their
    trained tokens (``"rows"``), or all rows and tokens, trained or not. ``at`` is the place of the value
    after the last step, ``form`` its layout there, ``join`` how the values of a repeated step become one.
    """

    axes: str
    unit: str = ""
    quantity: str = ""
    scope: Scope | Literal[""] = ""
    over: Population = ""
    at: Use | None = None
    form: Form | None = None
    join: Join | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a boundary: the function, and a codec for each argument.

    ``call`` is a dotted path of the target, a method of an earlier value, or a Python function of ours. A key of
    ``arguments`` that is a number is passed by position. After the call, later steps and outputs know
    its result by ``name``, and each argument by the name of its parameter. ``each`` repeats the step for every cut of
    the rows; ``inside`` names functions of the target whose last arguments and result are kept while the step runs.
    ``optional`` arguments are left out where a release has no such parameter. A ``remembered`` step answers equal
    arguments with a copy of its first answer. ``explain`` turns an exception of the call, and the arguments by name,
    into the one that is raised. ``doubles`` are functions of ours that replace those at dotted paths of the target
    while the step runs, for example of one that needs a GPU. ``produced_by`` cites, for an argument whose form is a
    choice, the line of the framework's trainer that makes it.
    """

    call: str | Use | Callable[..., Any]
    arguments: Mapping[str, Codec] = field(default_factory=dict)
    name: str = ""
    each: tuple[Cut, ...] = ()
    inside: Mapping[str, str] = field(default_factory=dict)
    produced_by: Mapping[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    remembered: bool = False
    doubles: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    explain: Callable[[Exception, Mapping[str, Any]], Exception] | None = None

    @property
    def result(self) -> str:
        """The name of the step's result: ``name``, or the last part of the function's path."""
        if self.name:
            return self.name
        last = self.call if isinstance(self.call, str) else getattr(self.call, "__name__", str(self.call))
        return last.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Real code of a target, described as data.

    ``path`` is the dotted path that is entered (several, joined by ``" -> "``, for a pipeline), ``steps`` its calls in
    order. ``reads`` are the columns that count: those that the codecs carry, without ``unused``, which the target is
    passed and ignores. ``requires`` are the conditions under which the target's own trainer could make the call; each
    answers why not, or "". ``domain`` brings a batch of the search into those conditions, and leaves one that fulfils
    them as it is. ``writes`` are the columns that it claims to change in place; ``twins`` the ``path``s that
    compute the same algorithm. ``notes`` are what a report says of how it was bound. ``own`` marks a function of the
    user's own: nothing is known of its callers, nor of the batches that they pass.
    """

    path: str
    stage: Stage
    steps: tuple[Step, ...]
    outputs: Mapping[str, Output]
    reads: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()
    requires: tuple[Callable[[Inputs], str], ...] = ()
    domain: Callable[[Batch], Batch] | None = None
    settings: Mapping[str, Settings] = field(default_factory=lambda: {"default": {}})
    claims: Claims = field(default_factory=Claims)
    writes: frozenset[str] = frozenset()
    twins: tuple[str, ...] = ()
    reach: str = ""
    notes: tuple[str, ...] = ()
    own: bool = False

    def __post_init__(self) -> None:
        """Derive the columns that are read from the codecs of the steps."""
        if not self.reads:
            carried = frozenset[str]().union(*(c.columns | c.shapes for c in self.codecs()))
            object.__setattr__(self, "reads", carried - self.unused)

    def codecs(self) -> tuple[Codec, ...]:
        """The codecs of all arguments, in the order of the calls."""
        return tuple(codec for step in self.steps for codec in step.arguments.values())

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout fields that the arguments follow."""
        fields: Mapping[Cut, Axis] = {"micro_batch": "micro_batches", "rank": "ranks"}
        cuts = frozenset(fields[cut] for step in self.steps for cut in step.each)
        return cuts.union(*(codec.axes for codec in self.codecs()))


@dataclass(frozen=True, slots=True)
class Unbound:
    """A boundary that was expected and could not be found, imported or bound: it fails loudly."""

    path: str
    stage: Stage
    reason: str
