"""Controllers by hand, and what they refuse."""

from collections.abc import Callable

import pytest

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.controller import Adaptive, Fixed

STEERED = Adaptive(0.5, target=2.0, horizon=100.0)


@pytest.mark.parametrize(
    ("observed", "samples", "expected"),
    [(2.0, 50, 0.5), (2.2, 50, 0.525), (9.0, 50, 0.55), (0.0, 50, 0.45), (-9.0, 50, 0.45), (9.0, 0, 0.5)],
)
def test_adaptive(observed: float, samples: int, expected: float) -> None:
    """By half of 10 %, of at most 20 % either way; a controller is never changed itself."""
    assert STEERED.after(observed, samples=samples).coefficient == pytest.approx(expected)
    assert STEERED.coefficient == 0.5


def test_stays_positive() -> None:
    assert STEERED.after(-9.0, samples=499).coefficient > 0


def test_fixed() -> None:
    assert Fixed(0.3).after(99.0, samples=4) == Fixed(0.3)


REFUSED: dict[str, Callable[[], object]] = {
    "coefficient is -0.1, expected a number of 0 or more": lambda: Fixed(-0.1),
    "coefficient is nan, expected a number of 0 or more": lambda: Adaptive(float("nan"), target=1.0, horizon=1.0),
    "target is 0.0, expected a number above 0": lambda: Adaptive(0.1, target=0.0, horizon=1.0),
    "horizon is 0.0, expected a number above 0": lambda: Adaptive(0.1, target=1.0, horizon=0.0),
    "observed is nan, expected a finite number: the mean raw KL, in nats": (
        lambda: Fixed(0.1).after(float("nan"), samples=1)
    ),
    "samples is -1, expected a number of 0 or more": lambda: STEERED.after(1.0, samples=-1),
    (
        "samples is 500, expected fewer than 500: with horizon 100 one update could bring the coefficient to 0 or "
        "below; use a longer horizon"
    ): (lambda: STEERED.after(1.0, samples=500)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(InputError) as told:
        REFUSED[message]()
    assert str(told.value) == message
