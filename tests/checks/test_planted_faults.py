"""Faults planted in small functions of each layout are found, and nothing at the sound versions."""

import pytest

import rl_sentinel
from checks.planted_faults import LAYOUTS
from quick import slow_after

#: One fault of each layout, which are tried in every run of the tests.
QUICK = {"advantage [G, K]": "grouping", "packed": "shift", "dict": "mask", "compute_loss": "shift"}


@pytest.mark.parametrize("layout", slow_after(5, [(layout,) for layout in LAYOUTS]))
def test_sound_functions_have_no_finding(layout: str) -> None:
    sound = LAYOUTS[layout]
    result = rl_sentinel.check(sound.function(), **sound.check)
    assert (result.ok, result.findings) == (True, ()), result


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        pytest.param(layout, fault, marks=() if QUICK.get(layout) == fault else pytest.mark.slow)
        for layout, sound in LAYOUTS.items()
        for fault in sound.faults
    ],
)
def test_planted_faults_are_found(layout: str, fault: str) -> None:
    sound = LAYOUTS[layout]
    assert rl_sentinel.check(sound.function(fault), **sound.check).faults
