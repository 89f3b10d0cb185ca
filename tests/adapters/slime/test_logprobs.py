"""Log-probs and entropy from logits in slime's specimen."""

from collections.abc import Callable

import pytest

from adapters.checks import bound, judged_at
from adapters.slime_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.target import Target
from rl_sentinel.laws.differs_from_reference import LAW as REF001

Loads = Callable[..., Target]


@pytest.mark.parametrize("setting", ["default", "other temperature"])
def test_shift_and_temperature(loads: Loads, setting: str) -> None:
    target = loads(FRAMEWORK, files(fixed=True))
    boundary = bound(FRAMEWORK, target)["get_log_probs_and_entropy", setting]
    judgement = judged_at(REF001, boundary, setting, target)
    assert judgement.tried
    assert judgement.found is None


def test_another_position(loads: Loads) -> None:
    """Logits that are read one position late are those of the next token."""
    tree = files(fixed=True)
    loss = "slime/backends/megatron_utils/loss.py"
    early = "logits[0, start + total - size - 1:start + total - 1]"
    tree[loss] = tree[loss].replace(early, early.replace(" - 1", ""))
    target = loads(FRAMEWORK, tree)
    boundary = bound(FRAMEWORK, target)["get_log_probs_and_entropy", "default"]
    assert judged_at(REF001, boundary, "default", target).found is not None
