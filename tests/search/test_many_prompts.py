"""The batch of many prompts has more groups than the other cases, and their rows apart."""

from rl_sentinel.search.many_prompts import many_prompts, one_success
from rl_sentinel.search.preconditions import contiguous, distinct, outcomes_compare
from rl_sentinel.search.random_cases import random_cases
from rl_sentinel.search.small_cases import small_cases


def test_one_response_is_far_from_its_siblings() -> None:
    reward = one_success().batch.reward
    assert float(((reward - reward.mean()) / reward.std(correction=0)).max()) > 3.3


def test_it_has_more_prompts_than_any_other_case() -> None:
    batch = many_prompts().batch
    most = max(len(distinct(case.batch.group)) for case in [*small_cases(), *random_cases(0, 64)])
    assert len(distinct(batch.group)) > most
    assert not contiguous(batch.group)
    assert outcomes_compare(batch)
