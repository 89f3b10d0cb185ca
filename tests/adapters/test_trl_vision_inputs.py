"""What models get beside token ids when TRL trains on images, on a specimen of our own."""

import pytest

from adapters.checks import Loads, answering, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.trl_specimen import overlay
from adapters.trl_vision_specimen import files, libraries
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, vision_inputs
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

#: The settings of each trainer.
NAMES = {"images", "types of Gemma", "types of Qwen"}


def _bound(loads: Loads, *, returned: str = "True", **choices: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    light = {name: text for name, text in overlay().items() if name != "transformers.py"}
    target = loads(FRAMEWORK, files(**choices), {**light, **libraries(returned)})
    found = [b for b in vision_inputs.boundaries(target) if isinstance(b, Boundary)]
    return target, {("DPO" if "DPO" in b.path else "SFT", next(iter(b.settings))): b for b in found}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == {(trainer, name) for trainer in ("DPO", "SFT") for name in NAMES}
    check_round_trips(target, list(boundaries.values()))
    assert answering(boundaries, target) == []


def test_types_that_no_processor_returns_are_not_asked_for(loads: Loads) -> None:
    assert {name for _, name in _bound(loads, returned="False")[1]} == NAMES - {"types of Qwen"}


@pytest.mark.parametrize(
    ("choices", "broken"),
    [
        ({}, set()),
        ({"policy": "NAMES[:-1]"}, {("DPO", "types of Qwen")}),
        ({"reference": "NAMES[:-1]"}, {("DPO", "types of Qwen")}),
        ({"reference": "NAMES[:4]"}, {("DPO", "types of Gemma"), ("DPO", "types of Qwen")}),
        ({"policy": "NAMES[:2]"}, {("DPO", name) for name in NAMES}),
        ({"images": "images[::-1]"}, {(trainer, name) for trainer in ("DPO", "SFT") for name in NAMES}),
        (
            {"of_prompts": "+ (name in TYPES)"},  # completions would be of the type of images
            {(trainer, name) for trainer in ("DPO", "SFT") for name in NAMES - {"images"}},
        ),
    ],
)
def test_what_the_models_get(loads: Loads, choices: dict[str, str], broken: set[tuple[str, str]]) -> None:
    """Policy and reference get each row's image, and a type for each token."""
    target, boundaries = _bound(loads, **choices)
    judged = {name: judged_at(DAT001, boundary, name[1], target) for name, boundary in boundaries.items()}
    assert all(judgement.tried > 0 for judgement in judged.values())
    assert {name for name, judgement in judged.items() if judgement.found is not None} == broken
