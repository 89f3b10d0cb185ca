"""A boundary as data: what it reads follows from its codecs, and nothing is shared between two of them."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.core.boundary import Boundary, Output, Step
from rl_sentinel.core.claims import Claims


def _boundary(**more: Any) -> Boundary:
    step = Step(call="a.b", arguments={"rewards": Column("reward"), "mask": ResponseMask()})
    fields = {"path": "a.b", "stage": "advantage", "steps": (step,)}
    return Boundary(**({**fields, "outputs": {"advantage": Output("B", "reward", "advantage")}} | more))


def test_a_boundary_has_one_setting_at_least() -> None:
    one, other = _boundary(), _boundary()
    assert one.settings == {"default": {}}
    assert one.settings is not other.settings
    assert one.claims == Claims()
    assert (one.writes, one.alternatives, one.reach) == (frozenset(), (), "")


def test_it_reads_what_its_arguments_carry() -> None:
    assert _boundary().reads == {"reward", "length"}
    assert _boundary(unused=frozenset({"length"})).reads == {"reward"}
    assert _boundary(reads=frozenset({"scored"})).reads == {"scored"}


def test_it_follows_the_layout_of_its_arguments() -> None:
    step = Step(call="a.b", arguments={"rewards": TokenRewards(), "logprob": Column("logprob")}, each=("micro_batch",))
    assert _boundary().axes == {"extra"}
    assert _boundary(steps=(step,)).axes == {"extra", "dtype", "micro_batches"}


def test_a_step_is_named_for_what_it_calls() -> None:
    assert Step(call="a.b.c").result == "c"
    assert Step(call="a.b.c", name="answer").result == "answer"


def test_fields_are_passed_by_name_and_stay() -> None:
    with pytest.raises(TypeError):
        Boundary("a.b", "advantage")  # type: ignore[call-arg]  # positional fields are refused
    with pytest.raises(FrozenInstanceError):
        _boundary().path = "c"  # type: ignore[misc]  # frozen


def test_an_output_declares_nothing_by_default() -> None:
    plain = Output("B T")
    assert (plain.unit, plain.quantity, plain.scope, plain.over) == ("", "", "", "")
