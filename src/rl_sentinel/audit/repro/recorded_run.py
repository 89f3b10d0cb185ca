"""Record a run of a boundary for a script: its calls as data, and its outputs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from rl_sentinel.adapters.kit.execution import EncodedCall, encode, inputs_of, sizes_of
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.codec import Sizes
from rl_sentinel.core.observation import Observation


@dataclass(slots=True, eq=False)
class Run:
    """One run of a boundary: its calls as data, the shape of its batch, and its outputs, unless the run was refused."""

    boundary: Boundary
    case: Case
    calls: list[EncodedCall]
    answer: Observation = field(default_factory=lambda: Observation({}))

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        """The outputs by name."""
        return self.answer.values

    @property
    def sizes(self) -> Sizes:
        """The shape of the batch."""
        return sizes_of(self.case.batch)

    def cut(self, output: str) -> str:
        """The index expression that removes the layout's padding from an output per token."""
        padded = self.case.layout.extra and "T" in self.boundary.outputs[output].axes.split()
        return f"[:, :{self.case.batch.width}]" if padded else ""


@dataclass(slots=True)
class ScriptRecorder:
    """An ``Ask`` that records the calls and outputs of each run."""

    asker: Asker
    runs: list[Run] = field(default_factory=list)

    @property
    def boundary(self) -> Boundary:
        """The boundary that is called."""
        return self.asker.boundary

    def __call__(
        self,
        case: Case,
        /,
        *,
        gradients: Iterable[str] = (),
        on: str | None = None,
        fresh: bool = False,
        watched: bool = False,
    ) -> Observation:
        """Call the boundary, or its alternative, and record the call."""
        boundary = self.boundary if on is None else self.asker.by_path[on]
        run = Run(boundary, case, encode(boundary, inputs_of(boundary, case)))
        self.runs.append(run)
        observation = self.asker(case, gradients=gradients, on=on, fresh=fresh, watched=watched)
        run.answer = observation
        return observation
