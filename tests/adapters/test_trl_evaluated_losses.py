"""The loss that TRL's GRPO trainers log in an evaluation, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.trl_specimen import IN_TRAINING, files, files_with_own_loss, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.evaluated_losses import boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002

#: A loss that is divided by the accumulation steps in an evaluation too.
ALWAYS = ""


def _bound(target: Target) -> dict[str, Boundary]:
    """Setting to boundary."""
    return {name: one for one in boundaries(target) if isinstance(one, Boundary) for name in one.settings}


@pytest.mark.parametrize(("trains", "found"), [(IN_TRAINING, False), (ALWAYS, True)])
@pytest.mark.parametrize("setting", ["loss of grpo", "loss of dr_grpo"])
def test_accumulation(loads: Loads, setting: str, trains: str, found: bool) -> None:
    """An evaluation accumulates nothing, so its loss does not depend on the steps that training accumulates."""
    target = loads(FRAMEWORK, files(trains=trains), overlay())
    check_verdict(CFG002, _bound(target)[setting], setting, target, found=found)


def test_counted_tokens(loads: Loads) -> None:
    """A loss that is divided by the tokens of the batch is the same in both modes."""
    target = loads(FRAMEWORK, files(trains=ALWAYS), overlay())
    check_verdict(CFG002, _bound(target)["loss of default"], "loss of default", target, found=False)


@pytest.mark.parametrize(("trains", "found"), [(IN_TRAINING, False), (ALWAYS, True)])
def test_derived_trainer(loads: Loads, trains: str, found: bool) -> None:
    """A derived trainer is evaluated with its loss."""
    tree = files_with_own_loss(f"(self.current_gradient_accumulation_steps{trains})")
    target = loads(FRAMEWORK, tree, overlay())
    check_verdict(CFG002, _bound(target)["loss of grpo, own"], "loss of grpo, own", target, found=found)


def test_trainer_without_evaluation(loads: Loads) -> None:
    """A release whose trainer has no step of an evaluation has no boundary here."""
    tree = files()
    tree["trl/trainer/base.py"] = tree["trl/trainer/base.py"].replace("def prediction_step", "def other_step")
    assert _bound(loads(FRAMEWORK, tree, overlay())) == {}
