"""TRL's losses with Liger's kernels, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_liger_specimen import (
    distillation_files,
    libraries,
    pair_libraries,
    policy_files,
    soft_policy_files,
)
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, liger_losses
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.gradient_off_mask import LAW as PLC002
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

GRPO, GKD, KTO = "grpo, Liger", "accumulated, Liger", "default, Liger"
SOFT = "sapo, Liger"
PARALLEL = "data-parallel, Liger"


def _bound(target: Target) -> dict[str, Boundary]:
    every = [one for one in liger_losses.boundaries(target) if isinstance(one, Boundary)]
    return {setting: one for one in every for setting in one.settings}


def _load(loads: Loads, setting: str, **choices: str) -> Target:
    if setting == GRPO:
        return loads(FRAMEWORK, policy_files(**choices), libraries())
    return loads(FRAMEWORK, distillation_files(**choices), pair_libraries())


@pytest.mark.parametrize("setting", [GRPO, GKD])
def test_all_boundaries_answer_and_read_back(loads: Loads, setting: str) -> None:
    """Each loss of the tree binds, and every column survives the round trip."""
    target = _load(loads, setting)
    boundaries = _bound(target)
    assert set(boundaries) == ({GRPO, "dapo, Liger", "dr_grpo, Liger"} if setting == GRPO else {GKD, PARALLEL, KTO})
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "choices"),
    [
        (PLC002, GRPO, {"trained": "mask"}),
        (REF001, GRPO, {"trained": "mask"}),
        (REF001, GKD, {"weights": ""}),
        (SPL001, GKD, {"count": "(labels != -100).sum()"}),
        (CFG002, PARALLEL, {"student": "self._both(inner)"}),
        (REF001, KTO, {"kl": "0"}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, choices: dict[str, str], *, sound: bool) -> None:
    """Tokens of a tool, a task's loss beside the divergence, a mean of means, a pass beside the wrapper, no KL term."""
    target = _load(loads, setting, **({} if sound else choices))
    check_verdict(law, _bound(target)[setting], setting, target, found=not sound)


@pytest.mark.parametrize("sound", [True, False])
def test_settings_of_the_loss(loads: Loads, *, sound: bool) -> None:
    """Liger's loss gets the settings that the plain loss reads; without them, it has its own defaults."""
    target = loads(FRAMEWORK, soft_policy_files(**({} if sound else {"soft": ""})), libraries())
    bound = _bound(target)[SOFT]
    check_calls(target, [bound])
    check_verdict(REF001, bound, SOFT, target, found=not sound)


def test_without_liger(loads: Loads) -> None:
    """A release whose overlay has no Liger has no such boundary."""
    assert _bound(loads(FRAMEWORK, policy_files(), overlay())) == {}


@pytest.mark.parametrize("passes", [True, False])
def test_setting_that_a_release_refuses(loads: Loads, *, passes: bool) -> None:
    """The two-sided clip is audited only in releases that pass its bound to Liger's loss."""
    tree = policy_files(soft="delta=self.args.delta," if passes else "")
    tree["trl/trainer/grpo_config.py"] += "        delta: float | None = None\n"
    assert ("two-sided clip, Liger" in _bound(loads(FRAMEWORK, tree, libraries()))) == passes
