"""What a boundary says of itself."""

from dataclasses import FrozenInstanceError

import pytest
import torch

from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.claims import Claims


def _boundary(**more: object) -> Boundary:
    told = {"path": "a.b", "stage": "advantage", "call": lambda _batch, _settings: {"advantage": torch.zeros(1)}}
    told |= {"reads": frozenset({"reward"}), "outputs": {"advantage": Output("B", "reward", "advantage")}}
    return Boundary(**(told | more))  # type: ignore[arg-type]  # of each test


def test_a_boundary_has_one_setting_at_least() -> None:
    """Else no law would be asked of it; and none shares what it did not say."""
    one, other = _boundary(), _boundary()
    assert one.settings == {"default": {}}
    assert one.settings is not other.settings
    assert one.claims == Claims()
    assert (one.writes, one.twins, one.reach) == (frozenset(), (), "")


def test_a_boundary_is_said_by_name_and_stays() -> None:
    """Ten things by position would be told wrongly."""
    with pytest.raises(TypeError):
        Boundary("a.b", "advantage")  # type: ignore[call-arg]  # which is what is refused
    with pytest.raises(FrozenInstanceError):
        _boundary().path = "c"  # type: ignore[misc]  # the same


def test_an_output_declares_nothing_unasked() -> None:
    """No scope and no population: laws of both would hold it to what it never said."""
    plain = Output("B T")
    assert (plain.unit, plain.quantity, plain.scope, plain.over) == ("", "", "", "")
