"""The result of one call as a law sees it, and the interface for making calls."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case


@dataclass(frozen=True, slots=True)
class Observation:
    """Outputs of a call, gradients of its loss, and its inputs as the call left them.

    ``arguments`` has what a watched call changed in place among the tensors that the target's own
    functions were given: name of the parameter and of the function -> values before and after.
    """

    values: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    inputs_after: Mapping[str, Tensor] = field(default_factory=dict)
    arguments: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


class Ask(Protocol):
    """All that a law may do with a target: call a boundary on a case.

    Raises :class:`~rl_sentinel.core.errors.Refused` where the target refuses the case in words.
    """

    @property
    def boundary(self) -> Boundary:
        """The boundary that is asked."""
        ...

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
        """Call the boundary (or its twin ``on``); ``gradients`` of its loss to these columns.

        A case as it was drawn may be answered from an earlier call on it, unless ``fresh``. ``inputs_after`` and
        ``arguments`` are there after a ``watched`` call alone, of the boundary itself and without gradients.
        """
        ...
