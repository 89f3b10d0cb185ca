"""Batches for functions that group by position: adjacent responses of a prompt, or rounds of all prompts."""

import pytest

from rl_sentinel.adapters.kit.prompt_groups import (
    BY_STRIDE,
    FixedGroups,
    GroupsOf,
    equal_groups,
    grouping,
    strided_groups,
)
from rl_sentinel.adapters.kit.user_layouts import GroupSize
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Inputs
from rl_sentinel.search.filled_batch import filled


def _batch(*group: int) -> Batch:
    return filled([[1]] * len(group), group=list(group), reward=[float(n) for n in range(len(group))])


@pytest.mark.parametrize(
    ("domain", "group", "reward"),
    [
        (equal_groups, [0, 0, 1, 1], [0, 2, 1, 3]),
        (strided_groups, [0, 1, 0, 1], [0, 1, 2, 3]),
        (FixedGroups(3), [0, 0, 0, 1, 1, 1], [0, 2, 4, 1, 3, 1]),
        (FixedGroups(3, strided=True), [0, 1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 1]),
    ],
)
def test_rows_are_ordered_as_the_function_expects(domain: object, group: list[int], reward: list[int]) -> None:
    assert callable(domain)
    ordered = domain(_batch(0, 1, 0, 1, 0))
    assert ordered.group.tolist() == group
    assert ordered.reward.tolist() == reward
    assert domain(ordered) is ordered


@pytest.mark.parametrize("group", [(0, 0, 1, 1), (0, 1, 1, 0), (0, 1, 0)])
def test_other_orders_are_no_rounds_of_prompts(group: tuple[int, ...]) -> None:
    assert any(violated(Inputs(_batch(*group))) for violated in BY_STRIDE)


def test_rounds_of_prompts_satisfy_the_preconditions() -> None:
    inputs = Inputs(_batch(4, 2, 4, 2, 4, 2))
    assert not any(violated(inputs) for violated in (*BY_STRIDE, GroupsOf(3)))
    assert GroupsOf(2)(inputs) == "a prompt does not have 2 responses"
    assert GroupSize(strided=True).put(inputs) == 3


def test_one_response_per_prompt_is_no_group() -> None:
    assert [violated(Inputs(_batch(0, 1))) for violated in BY_STRIDE] == ["", "a prompt has only one response"]


def test_a_strided_number_of_responses_asks_for_rounds_of_prompts() -> None:
    assert grouping([GroupSize(strided=True)], None) == ((strided_groups,), BY_STRIDE)
    assert grouping([GroupSize()], None)[0] == (equal_groups,)
