"""TRL's losses over data-parallel ranks, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_liger_specimen import libraries, pair_libraries, policy_files
from adapters.trl_pairs_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, wrapped_losses
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002

PAIRS = "trl.trainer.dpo_trainer.DPOTrainer.compute_loss"
GRPO = "trl.trainer.grpo_trainer.GRPOTrainer.compute_loss"

#: GRPO's choice between its losses.
CHOICE = """
        def compute_loss(self, model, inputs):
            if not self.args.use_liger_kernel:
                return self._compute_loss(model, inputs)
            inner = self.accelerator.unwrap_model(model)
            return {call}

        @property
        def _forward_redirection(self):
            return self.__dict__.get("redirection", self._through)

        @_forward_redirection.setter
        def _forward_redirection(self, value):
            self.__dict__["redirection"] = value

        def _through(self, wrapper, inner, method, *arguments):
            former = inner.forward

            def once(*given):
                inner.forward = former
                return method(*given)

            inner.forward = once
            return wrapper(*arguments)
"""

REDIRECTED = "self._forward_redirection(model, inner, self.compute_liger_loss, inner, inputs)"
BESIDE = "self.compute_liger_loss(inner, inputs)"


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    every = [one for one in wrapped_losses.boundaries(target) if isinstance(one, Boundary)]
    return {(one.path, setting): one for one in every for setting in one.settings}


def _pairs(loads: Loads, model: str) -> Target:
    tree = files()
    name = "trl/trainer/dpo_trainer.py"
    tree[name] = tree[name].replace("scores = self._scores(model, inputs)", f"scores = self._scores({model}, inputs)")
    return loads(FRAMEWORK, tree, pair_libraries())


@pytest.mark.parametrize(("model", "found"), [("model", False), ('getattr(model, "module", model)', True)])
def test_pairs(loads: Loads, model: str, found: bool) -> None:
    """A loss that takes the model out of its wrapper trains each rank on its own gradient."""
    target = _pairs(loads, model)
    check_verdict(CFG002, _bound(target)[PAIRS, "data-parallel"], "data-parallel", target, found=found)


def test_pairs_read_back(loads: Loads) -> None:
    """The call has every column of the batch."""
    target = _pairs(loads, "model")
    check_calls(target, [_bound(target)[PAIRS, "data-parallel"]])


@pytest.mark.parametrize(("call", "found"), [(REDIRECTED, False), (BESIDE, True)])
def test_fused_loss(loads: Loads, call: str, found: bool) -> None:
    """A fused loss goes through the forward pass of the wrapper."""
    tree = policy_files()
    name, setting = "trl/trainer/grpo_trainer.py", "data-parallel, Liger"
    tree[name] = tree[name].replace('# "dr_grpo"', '# "dr_grpo", "bnpo"') + CHOICE.replace("{call}", call)
    target = loads(FRAMEWORK, tree, libraries())
    check_verdict(CFG002, _bound(target)[GRPO, setting], setting, target, found=found)
