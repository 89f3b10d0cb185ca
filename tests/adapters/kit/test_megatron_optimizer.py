"""What arrives of an optimizer's options in Megatron's configuration."""

from collections.abc import Callable
from typing import Any

import pytest

from rl_sentinel.adapters.kit.megatron_optimizer import GIVEN, Section, bind_megatron_optimizer, settings_at_megatron

OptimizerConfig: Any = None  # replaced during the call, as a name that the function's module imports
print_rank_0: Any = None

NAMES = {"lr": "lr", "clip_grad": "clip", "weight_decay": "decay", "adam_beta1": "betas", "adam_beta2": "betas"}
PLACES = {field: field for field in NAMES}


def sound(section: Any) -> Any:
    print_rank_0("made")
    first, second = section.betas
    return OptimizerConfig(
        lr=section.lr, clip_grad=section["clip"], weight_decay=section.decay, adam_beta1=first, adam_beta2=second
    )


def without_decay(section: Any, _override: dict[str, Any]) -> Any:
    made = sound(section)
    del made.weight_decay
    return made


def swapped(section: Any) -> Any:
    made = sound(section)
    made.adam_beta1, made.adam_beta2 = made.adam_beta2, made.adam_beta1
    return made


def without_rate(section: Any) -> Any:
    made = sound(section)
    del made.lr
    return made


def found(convert: Callable[..., Any]) -> dict[str, float]:
    return settings_at_megatron(convert, NAMES, GIVEN, PLACES)


def test_all_options_arrive() -> None:
    assert found(sound) == {field: GIVEN[field] for field in NAMES}


@pytest.mark.parametrize(
    ("convert", "lost"),
    [
        (without_decay, {"weight_decay"}),
        (swapped, {"adam_beta1", "adam_beta2"}),
        (without_rate, {"lr"}),
    ],
)
def test_an_option_that_is_lost_differs(convert: Callable[..., Any], lost: set[str]) -> None:
    arrived, whole = found(convert), found(sound)
    assert {field for field in NAMES if arrived[field] != whole[field]} == lost


def test_a_section_has_options_as_items_and_attributes() -> None:
    section = Section(lr=0.5)
    assert (section["lr"], section.lr) == (0.5, 0.5)
    with pytest.raises(AttributeError, match="decay"):
        _ = section.decay


def test_the_boundary_has_an_output_per_option() -> None:
    boundary = bind_megatron_optimizer("m.convert", NAMES, cite="a page", reach="an option")
    assert list(boundary.outputs) == [f"OptimizerConfig.{field}" for field in NAMES]
