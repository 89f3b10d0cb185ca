"""Who catches what: users' mistakes, answers that are no verdict, and what a target says itself."""

import pytest

from rl_sentinel.core.errors import (
    Absent,
    InputError,
    NotApplicable,
    Refused,
    SentinelError,
    StandInTouched,
    Unbindable,
)


def test_bad_input_is_a_value_error_as_well() -> None:
    for kind in (ValueError, SentinelError):
        with pytest.raises(kind, match=r"^group is None$"):
            raise InputError("group is None")
    assert InputError.status == SentinelError.status == 2


@pytest.mark.parametrize(
    ("special", "general"), [(StandInTouched, NotApplicable), (Absent, Unbindable), (InputError, SentinelError)]
)
def test_the_special_is_caught_by_the_general(special: type[Exception], general: type[Exception]) -> None:
    """And not the other way round, so that it can be told apart first."""
    assert issubclass(special, general)
    assert not issubclass(general, special)


def test_answers_are_no_mistakes_of_the_user() -> None:
    answers = (NotApplicable, Refused, Unbindable)
    for one in answers:
        assert not issubclass(one, (SentinelError, ValueError, *(other for other in answers if other is not one)))
