"""KL coefficients: fixed, or adapted so that the observed raw KL approaches a target."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Self

from rl_sentinel.core.argument_checks import number
from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.requirements import NON_NEGATIVE, POSITIVE, require_range
from rl_sentinel.signal.validation import validate_record

#: The error is clipped to this share of the target, above and below it.
BOUND = 0.2

#: Claims about every controller.
CLAIMS = {"masked-slots": "any", "knob:coefficient": "0.1|0.5"}

#: Further claims, by function.
CLAIMS_OF = {"Adaptive": {"knob:target": "0.05|5.0", "knob:horizon": "40.0|400.0"}}


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant coefficient, in reward units per nat.

    Example:
        >>> from rl_sentinel.signal.controller import Fixed
        >>> Fixed(0.1).after(5.0, samples=64)
        Fixed(coefficient=0.1)
    """

    coefficient: float

    def __post_init__(self) -> None:
        """Validate that the coefficient is at least 0."""
        validate_record(self, coefficient=NON_NEGATIVE)

    def after(self, observed: float, *, samples: int) -> Self:
        """Return the same coefficient; ``observed`` is validated as in :class:`Adaptive`."""
        _check(observed, samples)
        return self


@dataclass(frozen=True, slots=True)
class Adaptive:
    r"""A coefficient that grows while the KL is above its target, and shrinks while it is below.

    .. math:: \beta' = \beta \left(1 + \operatorname{clip}\left(\frac{k}{k^*} - 1, -0.2, 0.2\right)
        \frac{n}{h}\right)

    ``coefficient`` is in reward units per nat, ``target`` :math:`k^*` in the unit of the observed value, ``horizon``
    :math:`h` in samples. ``horizon`` must exceed a fifth of the samples of a step: else the coefficient could be 0.

    Source:
        Fine-Tuning Language Models from Human Preferences, arXiv 1909.08593, with the gain as samples by horizon.

    Example:
        >>> from rl_sentinel.signal.controller import Adaptive
        >>> Adaptive(0.1, target=6.0, horizon=1000).after(60.0, samples=500)
        Adaptive(coefficient=0.11000000000000001, target=6.0, horizon=1000)
    """

    coefficient: float
    target: float
    horizon: float

    def __post_init__(self) -> None:
        """Validate the target, the horizon and the coefficient."""
        validate_record(self, coefficient=NON_NEGATIVE, target=POSITIVE, horizon=POSITIVE)

    def after(self, observed: float, *, samples: int) -> Self:
        """Return the controller for the next step.

        Args:
            observed: mean raw KL over the trained tokens (or responses) of the whole batch and all ranks, in
                nats; never a shaped reward. It may be negative: k1 of few samples is.
            samples: number of responses over which it was observed.

        Returns:
            A new controller; this one does not change.

        Raises:
            InputError: if ``observed`` is not finite, or ``samples`` is negative or not below 5 times the horizon.
        """
        _check(observed, samples)
        if samples >= self.horizon / BOUND:
            limit = f"fewer than {self.horizon / BOUND:g}"
            raise InputError(
                f"samples is {samples}, expected {limit}: with horizon {self.horizon:g} one update could bring the "
                "coefficient to 0 or below; use a longer horizon"
            )
        error = min(max(observed / self.target - 1, -BOUND), BOUND)
        return replace(self, coefficient=self.coefficient * (1 + error * samples / self.horizon))


def _check(observed: float, samples: int) -> None:
    number("observed", observed)
    if not isfinite(observed):
        raise InputError(f"observed is {observed}, expected a finite number: the mean raw KL, in nats")
    require_range("samples", samples, NON_NEGATIVE)
