"""What every case that is searched must satisfy, a stored one must too."""

import pytest
import torch

from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.stored_columns import MOST_ROWS, check_batch, check_whole
from rl_sentinel.search.random_cases import random_cases
from rl_sentinel.search.small_cases import small_cases


@pytest.mark.parametrize("law", laws().values(), ids=lambda law: law.code)
def test_no_case_that_a_law_draws_is_refused(law: object) -> None:
    checked = 0
    for case in (*small_cases(), *random_cases(3, 20)):
        for variant in range(law.variants):  # type: ignore[attr-defined] # a parameter of pytest is an object
            varied = law.vary(case, variant)  # type: ignore[attr-defined] # the same
            if varied is not None:
                check_batch(varied.batch)
                checked += 1
    assert checked


def test_too_many_rows() -> None:
    with pytest.raises(ValueError, match=rf"expected 1 to {MOST_ROWS} rows"):
        check_batch(batch_of(torch.ones(MOST_ROWS + 1, 1).bool()))


def test_truth_is_no_number() -> None:
    with pytest.raises(ValueError, match="seed is True, expected a whole number from 0 to 3"):
        check_whole("seed", value=True, most=3)
