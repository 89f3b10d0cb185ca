"""PUR001: a sound, a broken and a refusing specimen."""

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.input_is_mutated import LAW
from specimens import judged, specimen


def _new(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward.mean()).unsqueeze(1) * batch.mask


def _in_place(batch: Batch) -> Tensor:
    return batch.reward.sub_(batch.reward.mean()).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """New tensors out leave what was given."""
    judgement = judged(LAW, specimen(_new, reads="reward mask"))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A subtraction in place is found, with one token."""
    found = judged(LAW, specimen(_in_place, reads="reward mask")).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]]
    assert found.relation.key == "reward"
    assert found.relation.story == "reward before the call and after it"
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """What claims to write all that it reads may do so."""
    judgement = judged(LAW, specimen(_in_place, reads="reward", writes=frozenset({"reward"})))
    assert (judgement.tried, judgement.reason) == (0, "it claims to write all that it reads")
