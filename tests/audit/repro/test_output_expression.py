"""Expressions that read an output, shared by runs of one function."""

import pytest

from rl_sentinel.audit.repro.call_source import Source
from rl_sentinel.audit.repro.literal import Unwritable
from rl_sentinel.audit.repro.output_expression import shared_expression


def test_equal_expressions_stay() -> None:
    text = Source()
    assert shared_expression(["made[:, 1:]", "made[:, 1:]"], text, "loss") == "made[:, 1:]"
    assert text.parameters == {}


def test_expressions_of_other_shapes_become_a_parameter() -> None:
    """The function of the script is passed how to read each run."""
    text = Source()
    assert shared_expression(["made['x'].split([2])", "made['x'].split([1, 1])"], text, "a b") == "read_a_b(made['x'])"
    assert text.parameters == {"read_a_b": ["lambda value: value.split([2])", "lambda value: value.split([1, 1])"]}


def test_expressions_without_a_common_part() -> None:
    words = "^the recorded calls return an output in forms that one expression cannot read$"
    with pytest.raises(Unwritable, match=words):
        shared_expression(["one[0]", "two[0]"], Source(), "loss")
