"""Whether a call is refused, and columns that lack a number."""

from functools import partial

import pytest

from rl_sentinel.adapters.kit.incomplete_rows import shortened, unless_refused
from rl_sentinel.core.errors import NotApplicable


def _raise(error: Exception) -> int:
    raise error


def test_any_exception_of_the_target_is_a_refusal() -> None:
    refused = [unless_refused(partial(_raise, error)) for error in (ValueError("rows"), AssertionError(), KeyError(1))]
    assert refused == [None, None, None]
    assert unless_refused(lambda: 0) == 0


def test_a_case_that_does_not_apply_is_no_refusal() -> None:
    with pytest.raises(NotApplicable):
        unless_refused(lambda: _raise(NotApplicable("no prompt")))


def test_one_row_lacks_its_last_number() -> None:
    column = [[1, 2], [3, 4], []]
    assert [shortened(column, row) for row in range(3)] == [
        [[1], [3, 4], []],
        [[1, 2], [3], []],
        column,
    ]
    assert column == [[1, 2], [3, 4], []]
