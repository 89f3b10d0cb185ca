"""The form of a law, and the other side of what it finds."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.law import Law
from specimens import specimen


def _law(code: str = "ABC001", **more: object) -> Law:
    told = {"name": "a-fault", "stages": frozenset({"advantage"}), "applies": lambda _b: "", "vary": lambda c, _n: c}
    return Law(code=code, expect=lambda _ask, _case: iter(()), **(told | more))  # type: ignore[arg-type]  # of each test


@pytest.mark.parametrize("code", ["", "AB001", "ABC01", "abc001", "ABC0001", "ABCD001", "ABC001 ", "XABC001", "ABC-01"])
def test_codes_have_one_form(code: str) -> None:
    with pytest.raises(ValueError, match=rf"^law code is '{code}', expected three letters and three digits$"):
        _law(code)


def test_what_is_found_is_a_fault_until_it_is_said() -> None:
    law, case = _law(), Case(batch=batch_of(torch.ones(1, 1).bool()))
    assert law.level(case) == "fault"
    assert (law.fails, law.variants, law.at_once, law.shows_with) == ("on-one-case", 1, False, "")
    assert law.intended_at(specimen(lambda b: b.reward, reads="reward")) == ""


def test_the_intention_may_depend_on_the_boundary() -> None:
    masked = specimen(lambda b: b.reward, reads="reward mask", claims={"masked": "yes"})
    plain = specimen(lambda b: b.reward, reads="reward")

    def said(boundary: Boundary) -> str:
        return "it says that it masks" if boundary.claims.masked else ""

    assert _law(intended="it is documented").intended_at(masked) == "it is documented"
    assert [_law(intended=said).intended_at(b) for b in (masked, plain)] == ["it says that it masks", ""]
