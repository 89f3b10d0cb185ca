"""TRL's scores, counters, samplers and averages, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_counters_specimen import files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, checkpoints, log_averages, sampler_ranks, unscored_rewards
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.masking_differs_from_removal import LAW as MSK006
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.resume_differs import LAW as RES001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

GRPO = "trl.trainer.grpo_trainer.GRPOTrainer"
SCORES = f"{GRPO}._generate_and_score_completions"


def _load(loads: Loads, **choices: str) -> Target:
    return loads(FRAMEWORK, files(**choices), overlay())


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    """(path, setting) to boundary."""
    modules = (unscored_rewards, checkpoints, sampler_ranks, log_averages)
    every = [b for module in modules for b in module.boundaries(target)]
    return {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each form binds, and every column survives the round trip."""
    target = _load(loads)
    boundaries = _bound(target)
    assert set(boundaries) == {
        *((SCORES, name) for name in ("some unscored", "logged, some unscored", "restored")),
        (f"{GRPO}._get_train_sampler", "two processes"),
        (f"{GRPO}.log", "logging_steps above 1"),
    }
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "path", "setting", "choices"),
    [
        (MSK006, SCORES, "some unscored", {"leaves_out": "False"}),
        (MET001, SCORES, "logged, some unscored", {"leaves_out": "False"}),
        (RES001, SCORES, "restored", {"holder": "self.counted"}),
        (DAT002, f"{GRPO}._get_train_sampler", "two processes", {"generator": "None"}),
        (MET001, f"{GRPO}.log", "logging_steps above 1", {"known": "True"}),
    ],
)
def test_faults(loads: Loads, law: Law, path: str, setting: str, choices: dict[str, str], sound: bool) -> None:  # noqa: PLR0913 - parametrised
    """A completion without a score is left out; counters are restored, orders shared, and unknown numbers skipped."""
    target = _load(loads, **({} if sound else choices))
    check_verdict(law, _bound(target)[path, setting], setting, target, found=not sound)
