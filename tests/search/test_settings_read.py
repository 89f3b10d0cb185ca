"""Which settings the arguments are built from."""

from collections.abc import Callable

import pytest
import torch

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived, Knob
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Step
from rl_sentinel.core.case import Case
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.search.settings_read import settings_read

CASE = Case(batch_of(torch.tensor([[True]])), setting="default", override={"clip": 0.3})


def _boundary(*requires: Callable[[Inputs], str], **arguments: Codec) -> Boundary:
    settings = {"default": {"clip": 0.2, "width": 2.0, "of_the_formula": 1.0}}
    return Boundary(
        path="f",
        stage="policy-loss",
        steps=(Step(call="f", arguments=arguments),),
        outputs={},
        settings=settings,
        requires=requires,
    )


def test_names_that_codecs_read() -> None:
    """A knob, and one that is computed with; not a knob that the setting lacks, a constant or a column."""
    computed = Derived(lambda inputs: inputs.settings["width"])
    made = _boundary(a=Knob("clip"), b=computed, c=Knob("absent", 1.0), d=Constant(1.0), e=Column("reward"))
    assert settings_read(made, CASE) == {"clip", "width"}


def test_all_settings() -> None:
    """A function that is passed all settings reads all."""
    assert settings_read(_boundary(a=AllSettings()), CASE) == {"clip", "width", "of_the_formula"}


def test_arguments_that_cannot_be_built() -> None:
    """None are read in a case that the trainer could not have; in any other, the error is one of the audit."""
    pairs = Derived(lambda inputs: list(zip([inputs.settings["clip"]], [], strict=True)))
    assert settings_read(_boundary(lambda _inputs: "the rows are no pairs", a=pairs), CASE) == set()
    with pytest.raises(ValueError, match="shorter"):
        settings_read(_boundary(lambda _inputs: "", a=pairs), CASE)
