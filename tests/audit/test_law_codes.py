"""Laws as they are typed."""

import pytest

from rl_sentinel.audit.law_codes import code, codes
from rl_sentinel.core.errors import SentinelError


@pytest.mark.parametrize("text", ["MSK001", "msk001", " Msk001 ", "dead-row-shifts-signal"])
def test_law_is_found_by_code_and_name(text: str) -> None:
    assert code(text) == "MSK001"
    assert codes([text]) == ("MSK001",)


@pytest.mark.parametrize(
    ("text", "nearest"), [("MSK01", "MSK001 dead-row-shifts-signal"), ("par01", "PAR001 implementations-disagree")]
)
def test_nearest_law_is_named(text: str, nearest: str) -> None:
    with pytest.raises(SentinelError, match=rf"law is '{text}', expected a code or name .*: the nearest is {nearest}$"):
        code(text)


def test_a_list_in_one_text_is_refused() -> None:
    with pytest.raises(SentinelError, match=r"law is 'MSK001,GRP001', .*: give each law separately$"):
        code("MSK001,GRP001")


def test_none_is_none() -> None:
    assert codes(None) == ()
