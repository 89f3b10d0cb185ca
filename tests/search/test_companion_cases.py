"""Companions of a case."""

import torch

from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.search.companion_cases import companions, observation_or_none
from specimens import specimen


def test_companions_keep_the_setting() -> None:
    case = Case(batch_of(torch.ones(1, 1)), "seq", {"clip": 0.1}, {"variant": 3}, 5)
    found = list(companions(case))
    assert found[0] is case
    assert len(found) > 40
    assert {(c.setting, c.override["clip"], c.draw["variant"]) for c in found} == {("seq", 0.1, 3)}
    assert any(not bool(c.batch.live.all()) for c in found)


def test_refusal_is_no_answer() -> None:
    def refuse(batch: Batch) -> torch.Tensor:
        if batch.rows == 1:
            message = "one row is too few"
            raise ValueError(message)
        return batch.advantage

    ask = Asker(specimen(refuse, reads="advantage"), {})
    assert observation_or_none(ask, Case(batch_of(torch.ones(1, 1)))) is None
    assert observation_or_none(ask, Case(batch_of(torch.ones(2, 1)))) is not None
