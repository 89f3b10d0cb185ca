"""TRL's collated labels of supervised fine-tuning, on a specimen of our own."""

import pytest

from adapters.checks import Loads, by_setting, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_data_specimen import DATASETS, TRANSFORMERS
from adapters.trl_specimen import overlay
from adapters.trl_supervised_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, collated_labels
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

SETTINGS = set(collated_labels.FORMS)


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    light = {**overlay(), "transformers.py": TRANSFORMERS, "datasets.py": DATASETS}
    target = loads(FRAMEWORK, files(**choices), light)
    return target, by_setting(collated_labels.boundaries(target))


def _broken(loads: Loads, **choices: str) -> set[str]:
    """The settings that the law finds."""
    target, boundaries = _bound(loads, **choices)
    judged = {name: judged_at(TOK001, one, name, target) for name, one in boundaries.items()}
    assert all(judgement.tried > 0 for judgement in judged.values())
    return {name for name, judgement in judged.items() if judgement.found is not None}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == SETTINGS
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ({}, set()),
        ({"masked": "found == self.padding"}, {name for name in SETTINGS if "padded with the end" in name}),
        ({"masked": "real > 1"}, set()),  # the padding's labels are ignored already
        ({"untrained": "places < 0"}, {"texts, padding-free"}),  # a completion follows a prompt
        ({"kept": "'labels'"}, {name for name in SETTINGS if "completion" in name}),
        ({"kept": "'completion_mask'"}, {"tokens with labels"}),
        (
            {"tokenized": "{'input_ids': row['input_ids']}"},
            {name for name in SETTINGS if name.startswith("tokens with")},
        ),
        ({"end": "' <eos>'"}, {name for name in SETTINGS if "texts" in name} - {"texts without an end token"}),
        ({"end": "''"}, {"texts without an end token"}),
    ],
)
def test_labels(loads: Loads, choices: dict[str, str], found: set[str]) -> None:
    """Ignored by the padding's number, the end token is not trained; a flat row's first token has no label.

    A text gets an end token, and never two.
    Masks and labels arrive at the collator, also from a data set of tokens.
    """
    assert _broken(loads, **choices) == found
