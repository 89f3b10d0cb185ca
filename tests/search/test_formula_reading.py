"""The one accepted value that an output is held to over all cases."""

import pytest
import torch
from torch import Tensor

from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.case import Case
from rl_sentinel.search.formula_reading import ENOUGH, as_claimed, distance, fitting
from rl_sentinel.search.small_cases import small_cases
from specimens import specimen

ROWS = {"advantage": Output("B", "reward", "advantage")}


def _accepted(case: Case) -> tuple[dict[str, Tensor], Tensor]:
    reward = case.batch.reward.double()
    return {"half": reward / 2, "whole": reward, "long ones": reward * (case.batch.rows > 2)}, torch.tensor([True])


def test_the_one_that_fits_most() -> None:
    ask = Asker(specimen(lambda b: b.reward.clone(), reads="reward", outputs=ROWS), {})
    assert fitting(ask, small_cases()[0], "advantage", _accepted).name == "whole"


def test_the_case_at_hand_has_no_say() -> None:
    def turning(batch: Batch) -> Tensor:
        return batch.reward if batch.rows > 1 else batch.reward / 2

    ask = Asker(specimen(turning, reads="reward", outputs=ROWS), {})
    single = next(c for c in small_cases() if c.batch.rows == 1)
    assert fitting(ask, single, "advantage", _accepted).name == "whole"


def test_no_more_cases_than_it_takes() -> None:
    asked = []

    def counted(batch: Batch) -> Tensor:
        asked.append(batch)
        return batch.reward.clone()

    ask = Asker(specimen(counted, reads="reward", outputs=ROWS), {})
    assert fitting(ask, small_cases()[0], "advantage", _accepted).name == "whole"
    assert len(asked) < ENOUGH


def test_nothing_accepted() -> None:
    ask = Asker(specimen(lambda b: b.reward.clone(), reads="reward", outputs=ROWS), {})
    assert fitting(ask, small_cases()[0], "advantage", lambda _case: ({}, torch.tensor([True]))) == ("", 0)


def test_two_who_accept() -> None:
    ask = Asker(specimen(lambda b: b.reward.clone(), reads="reward", outputs=ROWS), {})

    def other(case: Case) -> tuple[dict[str, Tensor], Tensor]:
        return {"its own": case.batch.reward.double()}, torch.tensor([True])

    assert [fitting(ask, small_cases()[0], "advantage", a).name for a in (_accepted, other)] == ["whole", "its own"]


def test_distance() -> None:
    one, other = torch.tensor([1.0, torch.nan]), torch.tensor([3.0, 0.0])
    assert distance(one, other, torch.tensor([True, False])) == 2.0
    assert distance(one, other, torch.tensor([True, True])) == float("inf")


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("", ["half", "half of rows", "whole, of rows"]),
        ("half", ["half"]),
        ("of rows", ["half of rows", "whole, of rows"]),
        ("whole; rows", ["whole, of rows"]),
        ("a third", []),
    ],
)
def test_claimed(said: str, left: list[str]) -> None:
    values = {name: torch.zeros(()) for name in ("half", "half of rows", "whole, of rows")}
    claims = {"definition:advantage": said} if said else {}
    boundary = specimen(lambda b: b.reward.clone(), reads="reward", outputs=ROWS, claims=claims)
    assert list(as_claimed(boundary, "advantage", values)) == left
    assert list(as_claimed(boundary, "another", values)) == list(values)
