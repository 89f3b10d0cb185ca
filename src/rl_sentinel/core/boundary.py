"""``Boundary``: a function of the target (the audited code), and how its arguments and outputs map to a ``Batch``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Required, Self, TypedDict, Unpack

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Case, Scalar, Settings
from rl_sentinel.core.claims import Claims, Scope
from rl_sentinel.core.codec import Codec, Form, Inputs
from rl_sentinel.core.errors import Absent, Unbindable
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

#: How the results of a step that runs once per part of the rows are joined. ``rows`` concatenates them in order;
#: ``rank-mean`` sums over micro-batches and averages over ranks, as data-parallel training does with gradients.
Join = Literal["sum", "mean", "last", "rows", "rank-mean"]

#: The rows that an output averages or sums over, as the adapter declares; empty if not declared.
Population = Literal["", "live", "rows", "all"]

#: The parts into which the rows are cut; a step with ``each`` runs once per part.
Cut = Literal["rank", "micro_batch"]


@dataclass(frozen=True, slots=True)
class Output:
    """Description of one output of a boundary.

    Attributes:
        axes: ``"B T"``, ``"B"`` or ``""`` (one number for the whole batch).
        unit: as for the columns of a batch, such as ``"nats"``; may be empty.
        quantity: the name by which laws and definitions know the output, such as ``"advantage"`` or ``"kl.k1"``.
        scope: whether a decision is taken per token, row (``"sequence"``), group or batch; empty if it is no decision.
        over: the numbers in a mean or sum: live rows, all rows with their trained tokens (``"rows"``), or all rows and
            tokens, trained or not (``"all"``).
        at: where the value is after the last step.
        form: the layout of the value there.
        join: how the values of a repeated step are joined.
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

    Attributes:
        call: a dotted path of the target, a method of an earlier value, or a Python function of this package.
        arguments: codec of each argument; an argument whose key is a number is passed by position.
        name: the name by which later steps and outputs refer to the result; they refer to an argument by the name of
            its parameter.
        each: repeats the step for every cut of the rows.
        inside: name -> function of the target that the step calls; arguments and result of its last call are kept.
        produced_by: for an argument that could have several forms, the line of the framework's trainer that makes it.
        optional: arguments that are left out if a release has no such parameter.
        remembered: whether a call with equal arguments returns a copy of the first result.
        fakes: dotted path of the target -> function of this package that replaces it while the step runs, for example
            where the original needs a GPU.
        explain: receives an exception of the call and the arguments by name, and returns the exception to raise.
    """

    call: str | Use | Callable[..., Any]
    arguments: Mapping[str, Codec] = field(default_factory=dict)
    name: str = ""
    each: tuple[Cut, ...] = ()
    inside: Mapping[str, str] = field(default_factory=dict)
    produced_by: Mapping[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    remembered: bool = False
    fakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
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

    Attributes:
        path: dotted path of the function; for a pipeline, several paths joined by ``" -> "``.
        stage: its stage in the training step.
        steps: the calls, in order.
        outputs: the outputs by name.
        reads: columns that the call depends on; by default those that the codecs carry or need for shapes.
        unused: columns that the target receives and ignores; not in the default of ``reads``.
        requires: conditions under which the target's trainer could make the call; each returns the reason why it could
            not, or "".
        domain: changes a batch of the search so that it fulfils these conditions, if it does not.
        settings: configuration name -> its settings.
        claims: what the code or its documentation claims.
        writes: columns that the boundary claims to change in place.
        alternatives: paths of boundaries that compute the same algorithm.
        reach: the configuration with which training calls the boundary.
        notes: how the arguments were bound, for the report.
        undecided: the reason why the outputs cannot be compared with the formula of the claimed algorithm, or "".
        own: True for a user's function, whose callers and batches are unknown.
        has_dead_rows: True if the caller is known to pass rows without a trained token, such as rejected responses.
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
    has_dead_rows: bool = False

    def __post_init__(self) -> None:
        """Set ``reads``, if it is empty, to the columns that the codecs carry or need for shapes, except ``unused``."""
        if not self.reads:
            carried = frozenset[str]().union(*(c.columns | c.shapes for c in self.codecs()))
            object.__setattr__(self, "reads", carried - self.unused)

    def settings_of(self, case: Case) -> dict[str, Scalar]:
        """The settings of a case: the settings of its configuration, some of them replaced by ``override``."""
        return {**self.settings.get(case.setting, {}), **case.override}

    def codecs(self) -> tuple[Codec, ...]:
        """The codecs of all arguments, in the order of the calls."""
        return tuple(codec for step in self.steps for codec in step.arguments.values())

    @property
    def modeled(self) -> frozenset[str]:
        """The columns that a model computes during the call; at untrained positions they differ from the batch."""
        return frozenset[str]().union(*(codec.modeled for codec in self.codecs()))

    @property
    def axes(self) -> frozenset[Axis]:
        """The fields of the layout that affect the arguments or split the rows into parts."""
        fields: Mapping[Cut, Axis] = {"micro_batch": "micro_batches", "rank": "ranks"}
        cuts = frozenset(fields[cut] for step in self.steps for cut in step.each)
        return cuts.union(*(codec.axes for codec in self.codecs()))


class Surroundings(TypedDict, total=False):
    """Fields of :class:`Boundary` that :func:`one_call` takes besides the call."""

    path: Required[str]
    stage: Required[Stage]
    outputs: Required[Mapping[str, Output]]
    reads: frozenset[str]
    unused: frozenset[str]
    requires: tuple[Callable[[Inputs], str], ...]
    domain: Callable[[Batch], Batch] | None
    settings: Mapping[str, Settings]
    claims: Claims
    writes: frozenset[str]
    alternatives: tuple[str, ...]
    reach: str
    notes: tuple[str, ...]
    own: bool


def one_call(  # noqa: PLR0913 - the fields of a step
    *,
    call: str | Use | Callable[..., Any],
    arguments: Mapping[str, Codec],
    name: str = "",
    each: tuple[Cut, ...] = (),
    produced_by: Mapping[str, str] = MappingProxyType({}),
    optional: frozenset[str] = frozenset(),
    remembered: bool = False,
    fakes: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    explain: Callable[[Exception, Mapping[str, Any]], Exception] | None = None,
    **surroundings: Unpack[Surroundings],
) -> Boundary:
    """A boundary that is one call; the arguments are fields of its :class:`Step` and of the :class:`Boundary`."""
    step = Step(
        call=call,
        arguments=arguments,
        name=name,
        each=each,
        produced_by=produced_by,
        optional=optional,
        remembered=remembered,
        fakes=fakes,
        explain=explain,
    )
    return Boundary(steps=(step,), **surroundings)


@dataclass(frozen=True, slots=True)
class Unbound:
    """An expected boundary that could not be found, imported or bound; the report lists it with the reason.

    Attributes:
        path: the path of the boundary.
        stage: what it computes.
        reason: why it has no boundary.
        absent: whether the release lacks the function or the setting, as an older one may; this is no error.
    """

    path: str
    stage: Stage
    reason: str
    absent: bool = False

    @classmethod
    def because(cls, path: str, stage: Stage, why: Unbindable) -> Self:
        """The boundary that an exception says cannot be bound."""
        return cls(path, stage, str(why), absent=isinstance(why, Absent))
