"""Which item of a tuple or dict is compared."""

from typing import Any

import pytest
import torch

import rl_sentinel
from rl_sentinel.adapters.kit.returned_names import returned_items
from rl_sentinel.core.errors import InputError

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow


def standardized(rewards: Any, size: int = 4) -> Any:
    rows = rewards.view(-1, size)
    return ((rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 1e-4)).flatten()


def rewards_first(rewards: Any, group_size: int = 4) -> Any:
    return rewards, standardized(rewards, group_size)


def moments_first(rewards: Any, group_size: int = 4) -> Any:
    rows = rewards.view(-1, group_size)
    return rows.mean(1), rows.std(1), standardized(rewards, group_size)


def in_a_dict(rewards: Any, group_size: int = 4) -> Any:
    return {"raw": rewards, "out": {"scaled": standardized(rewards, group_size)}}


def wrong_and_raw(rewards: Any, group_size: int = 4) -> Any:
    return -standardized(rewards, group_size), rewards


@pytest.mark.parametrize(
    ("function", "item"), [(rewards_first, "1"), (moments_first, "2"), (in_a_dict, '"out.scaled"')]
)
def test_the_item_that_fits_is_read(function: Any, item: str) -> None:
    result = rl_sentinel.check(function, stage="advantage", algorithm="grpo")
    assert result.ok, str(result)
    assert f'bind={{"return": {item}}}' in " ".join(str(result).split())


def test_a_stated_item_is_read_without_a_note() -> None:
    result = rl_sentinel.check(rewards_first, stage="advantage", algorithm="grpo", bind={"return": 1})
    assert result.ok
    assert "bind=" not in str(result)
    wrong = rl_sentinel.check(rewards_first, stage="advantage", algorithm="grpo", bind={"return": 0})
    assert "REF001" in {finding.code for finding in wrong.findings}


def test_the_first_item_is_judged_where_none_fits() -> None:
    result = rl_sentinel.check(wrong_and_raw, stage="advantage", algorithm="grpo")
    assert "REF001" in {finding.code for finding in result.findings}
    assert "was read from" not in str(result)


@pytest.mark.slow
def test_a_total_loss_is_read_beside_its_parts() -> None:
    def loss(logps: Any, old_logps: Any, ref_logps: Any, advantages: Any, mask: Any) -> Any:
        ratio = (logps - old_logps).exp()
        policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        kl = (ref_logps - logps).exp() - (ref_logps - logps) - 1
        means = [(x * mask).sum() / mask.sum() for x in (policy, kl)]
        return {"policy_loss": means[0], "kl_loss": means[1], "total_loss": means[0] + 0.04 * means[1]}

    result = rl_sentinel.check(loss, stage="policy-loss", algorithm="grpo")
    assert result.ok, str(result)
    assert 'bind={"return": "total_loss"}' in " ".join(str(result).split())


def moved(logps: Any, old_logps: Any, advantages: Any) -> tuple[Any, Any]:
    ratio = (logps - old_logps).exp()
    return -advantages * ratio, -advantages * ratio.clamp(0.8, 1.2)


def test_a_wrong_loss_beside_a_right_number_is_a_fault() -> None:
    def loss(logps: Any, old_logps: Any, advantages: Any, mask: Any) -> Any:
        both = moved(logps, old_logps, advantages)
        least, most = [(pick(*both) * mask).sum() / mask.sum() for pick in (torch.min, torch.max)]
        return least, most.detach()

    result = rl_sentinel.check(loss, stage="policy-loss", algorithm="grpo")
    assert "REF001" in {finding.code for finding in result.findings}


def test_a_number_before_the_loss_is_passed_over() -> None:
    def loss(logps: Any, old_logps: Any, advantages: Any, mask: Any) -> Any:
        share = ((logps - old_logps).abs() > 0.2).float().mean()
        return share, (torch.max(*moved(logps, old_logps, advantages)) * mask).sum() / mask.sum()

    assert rl_sentinel.check(loss, stage="policy-loss", algorithm="grpo").ok


def test_two_items_that_may_be_the_output_are_asked_for() -> None:
    def advantages(rewards: Any, group_size: int = 4) -> Any:
        return standardized(rewards, group_size) ** 3, standardized(rewards, group_size)

    with pytest.raises(InputError, match="result does not fit the formula, but item 1 does: state"):
        rl_sentinel.check(advantages, stage="advantage", algorithm="grpo")


def test_several_losses_without_a_total_are_asked_for() -> None:
    def loss(logps: Any, old_logps: Any, advantages: Any, mask: Any) -> Any:
        mean = (torch.max(*moved(logps, old_logps, advantages)) * mask).sum() / mask.sum()
        return {"policy_loss": mean, "logged_loss": mean}

    with pytest.raises(
        InputError, match="the result of the function has policy_loss, logged_loss: state which item is"
    ):
        rl_sentinel.check(loss, stage="policy-loss", algorithm="grpo")


@pytest.mark.parametrize("stated", [1.5, True, [1]])
def test_what_is_no_position_and_no_key_is_refused(stated: Any) -> None:
    with pytest.raises(InputError, match=r"bind\[return\] is .*, expected a position or a key, as in"):
        rl_sentinel.check(rewards_first, stage="advantage", algorithm="grpo", bind={"return": stated})


def test_a_position_beyond_the_result_is_named() -> None:
    result = rl_sentinel.check(rewards_first, stage="advantage", algorithm="grpo", bind={"return": -3})
    assert "the result is a tuple of 2 items, expected advantage at position -3" in " ".join(str(result).split())


def test_a_missing_item_is_named() -> None:
    result = rl_sentinel.check(in_a_dict, stage="advantage", algorithm="grpo", bind={"return": "out.scores"})
    assert not result.ok
    assert "the result has no out.scores, expected an entry scores, found scaled" in " ".join(str(result).split())


def test_the_items_that_the_code_shows() -> None:
    assert returned_items(moments_first) == [0, 1, 2]
    assert returned_items(in_a_dict) == ["raw", "out.scaled"]
    assert returned_items(standardized) == []


def test_a_position_in_what_is_no_tuple_is_named() -> None:
    result = rl_sentinel.check(lambda rewards: rewards, stage="advantage", bind={"return": 5})
    assert not result.ok
    assert "the result is of type Tensor, expected a tuple with advantage at position 5" in " ".join(
        str(result).split()
    )
