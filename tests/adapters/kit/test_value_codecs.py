"""Codecs of settings, constants, earlier results, and of what the caller computes."""

import pytest
import torch

from adapters.kit.by_hand import BATCH, check_by_hand
from rl_sentinel.adapters.kit.value_codecs import (
    AllSettings,
    Computed,
    Constant,
    Derived,
    Earlier,
    IfSet,
    Knob,
    Spread,
    Width,
)
from rl_sentinel.core.call import Use
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.layout import Layout


@pytest.mark.parametrize(
    ("codec", "value", "settings"),
    [
        (Knob("clip"), 0.2, {"clip": 0.2}),
        (IfSet("clip"), 0.2, {"clip": 0.2}),
        (Spread(), {"clip": 0.2, "mode": "mean"}, {"clip": 0.2, "mode": "mean"}),
        (AllSettings(), {"clip": 0.2}, {"clip": 0.2}),
        (Constant("mean"), "mean", {}),
        (Earlier(Use("first")[0]), Use("first")[0], {}),
        (Derived(lambda inputs: inputs.batch.rows), 2, {}),
    ],
)
def test_a_value(codec: Codec, value: object, settings: dict[str, float | str]) -> None:
    """What is passed, and the settings that are read from it."""
    check_by_hand(codec, value, {}, settings)


def test_a_setting_that_is_not_named() -> None:
    """Its default."""
    assert Knob("clip", 0.3).put(Inputs(BATCH)) == 0.3


def test_width_of_padding() -> None:
    """The width of the batch and the extra padding of the layout; read back as a size."""
    value = Width().put(Inputs(BATCH, layout=Layout(extra=2)))
    assert value == BATCH.width + 2
    assert Width().sizes(value).width == value


def test_what_is_computed_cannot_be_read() -> None:
    """The codec says why; the precision is that of the layout."""
    ratio = Computed(frozenset({"logprob"}), lambda inputs: inputs.batch.logprob.exp(), "rounded")
    assert ratio.unreadable == {"logprob": "rounded"}
    assert ratio.put(Inputs(BATCH, layout=Layout(dtype="float64"))).dtype == torch.float64
