"""PUR001: a sound, a broken and a refusing specimen."""

import re

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.core.observation import Observation
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
    assert found.expectation.name == "reward"
    assert re.fullmatch(
        r"an input must not be changed, yet the call moves reward of row 0 from \S+ to \S+",
        found.expectation.sentence(),
    )
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """What claims to write all that it reads may do so."""
    judgement = judged(LAW, specimen(_in_place, reads="reward", writes=frozenset({"reward"})))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims to write every column that it reads")


def _told(before: Tensor, after: Tensor, mask: Tensor) -> list[str]:
    """Keys of the arguments that are compared, and differ, when a call changed one so."""
    case = Case(batch_of(mask))
    boundary = specimen(_new, reads="reward mask")
    columns = {n: getattr(case.batch, n) for n in boundary.reads}

    class Told:
        """An answer that says of one argument what became of it."""

        def __init__(self) -> None:
            self.boundary = boundary

        def __call__(self, _case: Case, /, **_more: object) -> Observation:
            return Observation({}, {}, columns, {"x of f": (before, after)})

    arguments = [e for e in LAW.expect(Told(), case) if e.name.startswith("argument")]
    return [e.name for e in arguments if bool(e.broken().any())]


def test_arguments_count_where_their_shape_tells_trained_tokens() -> None:
    part, every = torch.tensor([[True, False]] * 3), torch.ones(3, 2, dtype=torch.bool)
    zero, one = torch.zeros(3, 2), torch.ones(3, 2)
    assert _told(zero, one, part) == ["argument x of f"]
    assert _told(zero, (~part).float(), part) == []
    dead = torch.tensor([[True, True], [True, True], [False, False]])
    assert _told(torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]), dead) == []
    assert _told(torch.zeros(3), torch.tensor([0.0, 1.0, 0.0]), dead) == ["argument x of f"]
    assert _told(torch.zeros(2), torch.ones(2), every) == ["argument x of f"]
    assert _told(torch.zeros(2), torch.ones(2), part) == []
    assert _told(torch.zeros(3, 4), torch.ones(3, 4), every) == []
