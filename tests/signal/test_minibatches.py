"""Mini-batches of prompts, by hand."""

import pytest
import torch

from rl_sentinel.signal.minibatches import aggregation, prompt_mean, prompt_minibatches
from rl_sentinel.signal.reduce import Aggregation

#: Prompt 9 has five steps, 4 and 2 one each.
GROUP = torch.tensor([9, 9, 4, 9, 2, 9, 9])


def test_prompts_not_rows() -> None:
    found = prompt_minibatches(GROUP, prompts=2, generator=None)
    assert [rows.tolist() for rows in found] == [[0, 1, 2, 3, 5, 6], [4]]
    assert [rows.tolist() for rows in prompt_minibatches(GROUP, prompts=9, generator=None)] == [list(range(7))]


def test_shuffled() -> None:
    seen = set()
    for seed in range(20):
        found = prompt_minibatches(GROUP, prompts=1, generator=torch.Generator().manual_seed(seed))
        assert sorted(torch.cat(found).tolist()) == list(range(7))
        assert all(len(set(GROUP[rows].tolist())) == 1 for rows in found)
        seen.add(tuple(int(GROUP[rows[0]]) for rows in found))
    assert len(seen) > 3


def test_denominators() -> None:
    """Trained tokens, live rows, live rows times a length; never 0."""
    mask = torch.tensor([[True, True, False], [True, False, False], [False] * 3])
    assert aggregation("token-mean", mask=mask).denominator == 3
    assert aggregation("sequence-mean-token-mean", mask=mask).denominator == 2
    assert aggregation("sequence-mean-token-sum", mask=mask).denominator == 2
    assert aggregation("token-sum", mask=mask, length=8).denominator == 16
    assert aggregation("token-mean", mask=mask[2:]).denominator == 1


def _told(found: Aggregation) -> list[int]:
    assert found.prompt_tokens is not None
    return found.prompt_tokens.tolist()


def test_prompts_are_counted_over_the_whole() -> None:
    mask = torch.tensor([[True, True, False], [False] * 3, [True, False, False], [False] * 3])
    found = aggregation("prompt-mean", mask=mask, group=torch.tensor([4, 9, 4, -1]))
    assert (found.denominator, _told(found)) == (1.0, [3, 0, 3, 0])
    ranks = prompt_mean(torch.tensor([2, 0, 1, 0, 5]), group=torch.tensor([4, 9, 4, -1, 9]))
    assert (ranks.denominator, _told(ranks)) == (2.0, [3, 5, 3, 0, 5])
    assert _told(ranks.of_rows(torch.tensor([4, 0]))) == [5, 3]
    assert aggregation("prompt-mean", mask=mask[1:2], group=torch.tensor([9])).denominator == 1


def test_bad_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="prompts is 0, expected a whole number of 1 or more"):
        prompt_minibatches(GROUP, prompts=0, generator=None)
    mask = torch.ones(1, 1).bool()
    words = "^length is None with 'token-sum', expected a number of tokens: the sum is divided by length$"
    with pytest.raises(ValueError, match=words):
        aggregation("token-sum", mask=mask)
    words = "^length is 3 with 'token-mean', expected None: only 'token-sum' uses a length$"
    with pytest.raises(ValueError, match=words):
        aggregation("token-mean", mask=mask, length=3)
    with pytest.raises(ValueError, match=r"^group is None with 'prompt-mean', expected the prompt id of each row$"):
        aggregation("prompt-mean", mask=mask)
    with pytest.raises(ValueError, match=r"^tokens\[1\] is -1, expected 0 or more: trained tokens are counted$"):
        prompt_mean(torch.tensor([1, -1]), group=torch.tensor([4, 4]))
    with pytest.raises(ValueError, match="length is 0, expected a whole number of 1 or more"):
        aggregation("token-sum", mask=mask, length=0)


def test_a_whole_number_of_prompts_in_another_kind() -> None:
    """2.0 prompts are two."""
    group = torch.tensor([4, 2, 4])
    every = [[rows.tolist() for rows in prompt_minibatches(group, prompts=n, generator=None)] for n in (1, 1.0)]  # type: ignore[arg-type]  # what callers hand in
    assert every[0] == every[1]
