"""``Boundary``: a function of the target, and how its arguments and outputs map to the neutral batch."""

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
    "normalize",
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

#: How the results of a repeated step are joined: sum, mean or last one, rows concatenated in order, or the sum over
#: micro-batches and mean over ranks, as for gradients in data-parallel training.
Join = Literal["sum", "mean", "last", "rows", "rank-mean"]

#: The population that an output declares to average or sum over.
Population = Literal["", "live", "rows", "all"]

#: What a repeated step runs over.
Cut = Literal["rank", "micro_batch"]


@dataclass(frozen=True, slots=True)
class Output:
    """Description of one output of a boundary.

    ``axes`` is ``"B T"``, ``"B"`` or ``""`` (a number for the whole batch), ``quantity`` the name by which laws and
    definitions know it (``"advantage"``, ``"keep"``, ``"kl.k1"``), ``scope`` whether a decision is taken per token, row
    or group, ``over`` the declared population: live rows, all rows with their trained tokens (``"rows"``), or all rows
    and tokens, trained or not. ``at`` is the place of the value after the last step, ``form`` its layout there,
    ``join`` how the values of a repeated step are joined.
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

    ``call`` is a dotted path of the target, a method of an earlier value, or a Python function of this package. An
    ``arguments`` entry whose key is a number is passed by position. After the call, later steps and outputs refer to
    its result by ``name``, and to each argument by the name of its parameter. ``each`` repeats the step for every cut
    of the rows; ``inside`` names functions of the target whose last arguments and result are kept while the step runs.
    ``optional`` arguments are left out where a release has no such parameter. A ``remembered`` step returns a copy of
    its first result when it is called with equal arguments again. ``explain`` receives an exception of the call and the
    arguments by name, and returns the exception to raise. ``doubles`` maps dotted paths of the target to functions of
    this package that replace them while the step runs, for example where the original needs a GPU. ``produced_by``
    cites, for an argument that could have several forms, the line of the framework's trainer that produces it.
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
    """A function (or pipeline) of a target, described as data.

    ``path`` is the dotted path that is entered (several, joined by ``" -> "``, for a pipeline), ``steps`` its calls in
    order. ``reads`` are the columns that the codecs carry, except ``unused``, which the target receives and ignores.
    ``requires`` are the conditions under which the target's own trainer could make the call; each returns the reason
    why not, or "". ``domain`` changes a batch of the search so that it fulfils these conditions, and keeps a batch that
    already does. ``writes`` are the columns that it claims to change in place; ``alternatives`` the ``path``s that
    compute the same algorithm. ``notes`` tell the report how the arguments were bound. ``undecided`` is why its
    outputs cannot be compared with the formula that was claimed of it. ``own`` marks a user's function, whose
    callers and batches are unknown.
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
    alternatives: tuple[str, ...] = ()
    reach: str = ""
    notes: tuple[str, ...] = ()
    undecided: str = ""
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
    def modeled(self) -> frozenset[str]:
        """The columns that a model computes during the call, at untrained positions with other values."""
        return frozenset[str]().union(*(codec.modeled for codec in self.codecs()))

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout fields that the arguments follow."""
        fields: Mapping[Cut, Axis] = {"micro_batch": "micro_batches", "rank": "ranks"}
        cuts = frozenset(fields[cut] for step in self.steps for cut in step.each)
        return cuts.union(*(codec.axes for codec in self.codecs()))


@dataclass(frozen=True, slots=True)
class Unbound:
    """An expected boundary that could not be found, imported or bound; the report lists it with the reason."""

    path: str
    stage: Stage
    reason: str
