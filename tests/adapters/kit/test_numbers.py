"""Numbers among the parameters of a user's function."""

from inspect import Parameter, Signature

import pytest

from rl_sentinel.adapters.kit.numbers import numbers
from rl_sentinel.core.boundary import Stage


class Function:
    """A function with these parameters and defaults."""

    def __init__(self, **defaults: object) -> None:
        """Make its signature."""
        kind = Parameter.KEYWORD_ONLY
        self.__signature__ = Signature([Parameter(n, kind, default=d) for n, d in defaults.items()])

    def __call__(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("defaults", "stage", "settings", "passed"),
    [
        ({"epsilon": 1e-8}, "advantage", {"epsilon": 1e-8}, {}),
        ({"epsilon": Parameter.empty}, "advantage", {"epsilon": 1e-6}, {"epsilon": 1e-6}),
        ({"eps": 0.1}, "policy-loss", {"clip_low": 0.1, "clip_high": 0.1}, {}),
        ({"clip_low": 0.1, "clip_ratio": 0.2}, "policy-loss", {"clip_low": 0.1, "clip_high": 0.2}, {}),
        ({"clip_low": None, "clip_ratio": 0.2}, "policy-loss", {"clip_low": 0.2, "clip_high": 0.2}, {}),
        ({"clip_c": Parameter.empty}, "policy-loss", {"ceiling": 3.0}, {"clip_c": 3.0}),
        ({"delta": 4.0}, "policy-loss", {"ceiling": 4.0}, {}),
        ({"delta": Parameter.empty}, "policy-loss", {"ceiling": 3.0}, {"delta": 3.0}),
        ({"delta": Parameter.empty}, "advantage", {}, {}),
        ({"clip_coef": 0.3}, "value-loss", {"value_clip": 0.3}, {}),
        (
            {"clip_coef": 0.3, "cliprange_value": 0.4},
            "value-loss",
            {"clip_low": 0.3, "clip_high": 0.3, "value_clip": 0.4},
            {},
        ),
        ({"color": 3}, "policy-loss", {}, {}),
    ],
)
def test_numbers_have_the_names_of_formulas(
    defaults: dict[str, object], stage: Stage, settings: dict[str, float], passed: dict[str, float]
) -> None:
    """Defaults stand; what has none is passed; one side goes before both."""
    assert numbers(Function(**defaults), stage) == (settings, passed)
