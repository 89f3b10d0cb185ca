"""The result of one call as a law sees it, and the interface for making calls."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case


@dataclass(frozen=True, slots=True)
class Observation:
    """Outputs of a call, gradients, and its inputs as the call left them.

    ``gradients`` are those of the loss; without a loss, of the sum of all outputs.
    ``arguments`` has the arguments of the target's functions that a watched call changed in place: parameter and
    function name -> values before and after the call.
    """

    values: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    inputs_after: Mapping[str, Tensor] = field(default_factory=dict)
    arguments: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


class Ask(Protocol):
    """The interface by which a law calls a boundary on a case.

    Raises an exception of ``core.errors``: ``Refused`` if the target refuses the case with a message, ``Crashed`` if it
    fails by accident, ``NotApplicable`` if its trainer could not make the call.
    """

    @property
    def boundary(self) -> Boundary:
        """The boundary that is called."""
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
        """Call the boundary, or its alternative ``on``; compute gradients of its loss for the columns ``gradients``.

        The result of an earlier call on the same case may be returned, unless ``fresh``. ``inputs_after`` and
        ``arguments`` may be empty, except after a ``watched`` call without ``gradients`` and ``on``.
        """
        ...
