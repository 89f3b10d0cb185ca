"""The types for the arguments of a user's function."""

from dataclasses import dataclass

import pytest
from torch import Tensor

from rl_sentinel.adapters.kit.function_arguments import Arguments, Slot
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.errors import Unbindable


@dataclass
class Response:
    """A response of a user's code."""

    rewards: Tensor


def test_stated_numbers_replace_defaults_and_enter_the_formula() -> None:
    arguments = Arguments("policy-loss", numbers={"clip_low": 0.1})
    arguments.pass_numbers({"eps_clip": 0.3, "top_k": 5})
    assert arguments.codecs == {"eps_clip": Constant(0.3), "top_k": Constant(5)}
    assert (arguments.numbers["clip_low"], arguments.numbers["clip_high"]) == (0.3, 0.3)
    assert 5 not in arguments.numbers.values()  # no formula has this number


def test_a_slot_without_a_default_is_required() -> None:
    assert Slot("rewards").required
    assert not Slot("rewards", default=None).required


def test_a_slot_describes_the_dataclass_of_an_argument_or_of_its_items() -> None:
    assert Slot("batch", Response).described_class is Response
    assert Slot("batch", list[Response]).described_class is Response
    assert Slot("batch", list[Response]).dataclass is None
    assert Slot("batch", Tensor).described_class is None


def test_a_trial_decides_on_tokens_whose_lengths_are_another_parameter() -> None:
    assert Slot("mask", packed=True).supported_axes("T", "mask", "mask", source="annotation") == ""
    assert Slot("mask", packed=True).supported_axes("BT", "mask", "mask", source="annotation") == "BT"
    with pytest.raises(Unbindable, match="of one trajectory"):
        Slot("mask").supported_axes("T", "mask", "mask", source="annotation")
