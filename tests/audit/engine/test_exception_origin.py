"""Accidents of a target are told from what it raises on purpose, and from what is not its own."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rl_sentinel.audit.engine.exception_origin import Origin, origin_of
from rl_sentinel.core.batch import batch_of

HERE = Path(__file__).parent


def _index() -> None:
    [].pop()


def _in_torch() -> None:
    torch.stack([])


def _on_purpose() -> None:
    raise RuntimeError("no token is trained")


def _asserts() -> None:
    assert not HERE.is_dir(), "a folder"


def _package_is_missing() -> None:
    import no_such_package  # type: ignore[import-not-found]  # noqa: F401, PLC0415 - that it is absent is the case


def _fake_of_ours_raises() -> None:
    batch_of(None)  # type: ignore[arg-type]  # what a function of this package cannot take


def _refusal_of_a_library() -> None:
    torch.distributions.Normal(torch.zeros(1), -torch.ones(1), validate_args=True)


def _origin(function: Callable[[], None], root: Path) -> Origin:
    try:
        function()
    except Exception as error:  # noqa: BLE001 - any of them has an origin
        return origin_of(error, root)
    pytest.fail("nothing was raised")


@pytest.mark.parametrize(("function", "line"), [(_index, 16), (_in_torch, 20)])
def test_accident(function: Callable[[], None], line: int) -> None:
    assert _origin(function, HERE) == Origin(f"test_exception_origin.py:{line}")


@pytest.mark.parametrize("function", [_on_purpose, _asserts])
def test_on_purpose(function: Callable[[], None]) -> None:
    assert _origin(function, HERE) == Origin(on_purpose=True)


@pytest.mark.parametrize("function", [_package_is_missing, _fake_of_ours_raises, _refusal_of_a_library])
def test_not_of_the_target(function: Callable[[], None]) -> None:
    assert _origin(function, HERE) == Origin()


def test_outside_of_the_target(tmp_path: Path) -> None:
    """An adapter that fails before or after the call."""
    assert _origin(_index, tmp_path) == Origin()
