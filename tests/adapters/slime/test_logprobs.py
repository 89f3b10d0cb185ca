"""Log-probs and entropy from logits in slime's specimen."""

import pytest

from adapters.checks import Loads, bound, check_verdict
from adapters.slime_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004


@pytest.mark.parametrize("setting", ["default", "other temperature"])
def test_shift_and_temperature(loads: Loads, setting: str) -> None:
    target = loads(FRAMEWORK, files(fixed=True))
    boundary = bound(FRAMEWORK, target)["get_log_probs_and_entropy", setting]
    check_verdict(REF001, boundary, setting, target, found=False)


def test_another_position(loads: Loads) -> None:
    """Logits that are read one position late are those of the next token."""
    tree = files(fixed=True)
    loss = "slime/backends/megatron_utils/loss.py"
    early = "logits[0, start + total - size - 1:start + total - 1]"
    tree[loss] = tree[loss].replace(early, early.replace(" - 1", ""))
    target = loads(FRAMEWORK, tree)
    boundary = bound(FRAMEWORK, target)["get_log_probs_and_entropy", "default"]
    check_verdict(REF001, boundary, "default", target, found=True)


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_values_have_no_temperature(loads: Loads, fixed: bool, found: bool) -> None:
    """A critic's outputs divided by the temperature of sampling are no values."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["get_values", "other temperature"]
    check_verdict(PLC004, boundary, "other temperature", target, found=found)
