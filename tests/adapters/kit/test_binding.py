"""Descriptions fitted to what a release has: absent functions, renamed, optional and unknown parameters."""

from adapters.checks import Loads, the_only
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound

NOTHING = Framework(name="made", package="made", boundaries=lambda _target: iter(()))
FILES = {"made/__init__.py": "", "made/code.py": "def f(rewards, mask=None): return rewards\n"}


def _boundary(*parameters: str, call: str = "made.code.f", optional: frozenset[str] = frozenset()) -> Boundary:
    arguments = {name: Column("mask" if "mask" in name else "reward") for name in parameters}
    step = Step(call=call, arguments=arguments, optional=optional)
    return Boundary(path=call, stage="advantage", steps=(step,), outputs={"advantage": Output("B")})


def _bound(loads: Loads, *described: Boundary, optional: bool = False) -> list[Boundary | Unbound]:
    return list(bindable(loads(NOTHING, FILES), *described, optional=optional))


def _reason(bound: list[Boundary | Unbound]) -> str:
    (unbound,) = bound
    assert isinstance(unbound, Unbound)
    return unbound.reason


def test_a_description_that_fits_is_unchanged(loads: Loads) -> None:
    """Parameters with a default may be left out."""
    whole, part = _boundary("rewards", "mask"), _boundary("rewards")
    assert _bound(loads, whole, part) == [whole, part]


def test_parameters_that_do_not_fit(loads: Loads) -> None:
    """One that the function lacks, and one that it requires."""
    assert _reason(_bound(loads, _boundary("rewards", "masks"))) == (
        "made.code.f has no parameter 'masks', which the adapter passes"
    )
    assert _reason(_bound(loads, _boundary("mask"))) == (
        "made.code.f requires 'rewards', for which the adapter has no argument"
    )


def test_a_function_that_does_not_fit_is_not_absent(loads: Loads) -> None:
    """It is an error: the adapter does not know this release."""
    (unbound,) = _bound(loads, _boundary("rewards", "masks"))
    assert isinstance(unbound, Unbound)
    assert not unbound.absent


def test_an_optional_argument_is_left_out_where_there_is_no_such_parameter(loads: Loads) -> None:
    """Releases differ in it."""
    bound = the_only(_bound(loads, _boundary("rewards", "masks", optional=frozenset({"masks"}))))
    assert set(bound.steps[0].arguments) == {"rewards"}


def test_an_absent_function_is_reported_once(loads: Loads) -> None:
    """Not for each family; and not at all where it is optional."""
    absent = _boundary("rewards", call="made.code.g")
    (unbound,) = _bound(loads, absent, absent)
    assert isinstance(unbound, Unbound)
    assert "made.code.g is absent" in unbound.reason
    assert unbound.absent
    assert _bound(loads, absent, optional=True) == []
