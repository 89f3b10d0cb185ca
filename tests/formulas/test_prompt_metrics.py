"""Numbers of several samples per prompt, worked out by hand."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.measures import measured_batch

READS = frozenset({"reward", "group"})


def _found(quantity: str, rewards: list[float], groups: list[int]) -> dict[str, float]:
    columns = {"reward": torch.tensor(rewards), "group": torch.tensor(groups)}
    batch = batch_of(torch.ones(len(rewards), 1).bool(), **columns)
    return {n: round(x.item(), 6) for n, x in measured_batch(quantity, batch, READS, "all", {}).items()}


WITH, WITHOUT = "drawn with replacement", "drawn without replacement"


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("sample_mean", {"mean": 1.25}),  # of 1 and 1.5
        ("sample_deviation", {"deviation (n)": 0.75, "deviation (n - 1)": 1.06066}),  # of 1 and 0.5; by root 2
        ("best_sample", {WITH: 1.625, WITHOUT: 2.0}),  # of 1.5 and 1.75; of the best themselves
        ("worst_of_two", {WITH: 0.875, WITHOUT: 0.5}),
        ("solved_prompts", {"a reward above 0": 1.0, "a reward of 1 or more": 1.0}),
    ],
)
def test_mean_over_prompts(quantity: str, expected: dict[str, float]) -> None:
    """Two prompts, with the rewards 0 and 2, and 1 and 2."""
    assert _found(quantity, [0.0, 1.0, 2.0, 2.0], [7, 3, 7, 3]) == expected


def test_two_of_three() -> None:
    """Of nine draws of 1, 0 and 0, five have the 1; of the three pairs, two."""
    assert _found("best_of_two", [1.0, 0.0, 0.0], [1, 1, 1]) == {WITH: round(5 / 9, 6), WITHOUT: round(2 / 3, 6)}


def test_vote() -> None:
    """All three vote: 0 wins. Of 27 draws of three, 1 wins those with it twice or more: six and one."""
    assert _found("voted_sample", [1.0, 0.0, 0.0], [1, 1, 1]) == {WITH: round(7 / 27, 6), WITHOUT: 0.0}


def test_tied_vote() -> None:
    """Two answers with one vote each: either wins as often."""
    assert _found("voted_of_two", [1.0, 0.0], [1, 1]) == {WITH: 0.5, WITHOUT: 0.5}


def test_unsolved() -> None:
    assert _found("solved_prompts", [0.0, 0.5, 0.0, 0.0], [1, 1, 2, 2]) == {
        "a reward above 0": 0.5,
        "a reward of 1 or more": 0.0,
    }
