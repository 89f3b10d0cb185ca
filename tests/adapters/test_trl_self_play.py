"""TRL's trainers that sample pairs, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_self_play_specimen import files, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, online_dpo, self_play
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

#: Name of a trainer's class, setting.
Key = tuple[str, str]


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[Key, Boundary]]:
    target = loads(FRAMEWORK, files(**broken), overlay())
    made = [one for module in (self_play, online_dpo) for one in module.boundaries(target)]
    found = [one for one in made if isinstance(one, Boundary)]
    return target, {(one.path.split(".")[-2], next(iter(one.settings))): one for one in found}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    penalized = ("missing EOS", "missing EOS, prompts with an end token")
    assert set(boundaries) == {
        *(("XPOTrainer", name) for name in ("model's response wins", "reference's response wins", *penalized)),
        *(("NashMDTrainer", name) for name in ("whole step", *penalized)),
        *((name, "judge") for name in ("XPOTrainer", "NashMDTrainer", "OnlineDPOTrainer")),
        *((name, "logged") for name in ("XPOTrainer", "NashMDTrainer", "OnlineDPOTrainer")),
        *(("OnlineDPOTrainer", name) for name in ("model", "model, missing EOS")),
    }
    check_calls(target, boundaries.values())


FAULTS: list[tuple[Law, Key, dict[str, str]]] = [
    (REF001, ("XPOTrainer", "model's response wins"), {"explored": "policy[0]"}),
    (REF001, ("XPOTrainer", "reference's response wins"), {"explored": "torch.where(first, *policy[::-1])"}),
    (REF001, ("XPOTrainer", "missing EOS"), {"ended": "ids * 0 + 1"}),
    (REF001, ("XPOTrainer", "missing EOS, prompts with an end token"), {"ended": "whole"}),
    (REF001, ("XPOTrainer", "judge"), {"explored": "policy[0]"}),
    (SPL001, ("XPOTrainer", "model's response wins"), {"steps": "1"}),
    (REF001, ("NashMDTrainer", "whole step"), {"better": "self.scores(prompts, others) - self.scores(prompts, ids)"}),
    (REF001, ("NashMDTrainer", "missing EOS, prompts with an end token"), {"ended": "whole"}),
    (MET001, ("NashMDTrainer", "logged"), {"logged": "[:1]"}),
    (REF001, ("OnlineDPOTrainer", "model"), {"compared": "<"}),
    (REF001, ("OnlineDPOTrainer", "judge"), {"winner": "1"}),
    (REF001, ("OnlineDPOTrainer", "model, missing EOS"), {"ended": "ids * 0 + 1"}),
    (REF001, ("OnlineDPOTrainer", "logged"), {"implicit": "chosen.sum()"}),
]


@pytest.mark.parametrize(("law", "key", "broken"), FAULTS)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, key: Key, broken: dict[str, str], found: bool) -> None:
    """Another response in the exploration term, a penalty that is lost, a wrong winner, and wrong averages."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[key], key[1], target, found=found)
