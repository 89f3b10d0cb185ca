"""Divergences between a student and a teacher, against numbers worked out by hand."""

from math import log

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.distillation import DISTILLATIONS

#: Student (1/2, 1/2, 0) and teacher (1/4, 3/4, 0).
BATCH = batch_of(
    torch.ones(1, 1).bool(),
    logits=torch.tensor([[[0.5, 0.5, 1e-30]]]).log(),
    ref_logits=torch.tensor([[[0.25, 0.75, 1e-30]]]).log(),
)


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        (0.0, 0.25 * log(0.5) + 0.75 * log(1.5)),
        (1.0, 0.5 * log(2.0) + 0.5 * log(2 / 3)),
        (0.5, 0.5 * (0.25 * log(2 / 3) + 0.75 * log(1.2)) + 0.5 * (0.5 * log(4 / 3) + 0.5 * log(0.8))),
    ],
)
def test_divergence_by_share_of_the_teacher(beta: float, expected: float) -> None:
    """The KL of either against the other at the ends, and of both against the mixture between."""
    found = DISTILLATIONS["generalized jsd"](BATCH, {"mixture": beta})
    assert found.item() == pytest.approx(expected, abs=1e-6)


#: Student (1/2, 1/4, 1/4) and teacher (1/8, 5/8, 1/4); the sampled word is the third.
SPARSE = batch_of(
    torch.ones(1, 1).bool(),
    logits=torch.tensor([[[0.5, 0.25, 0.25]]]).log(),
    ref_logits=torch.tensor([[[0.125, 0.625, 0.25]]]).log(),
    token=torch.tensor([[2]]),
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mixture": 0.0, "likeliest": 1, "tail": True}, 0.625 * log(2.5) + 0.375 * log(0.5)),
        ({"mixture": 0.0, "likeliest": 2, "tail": False}, 5 / 7 * log(10 / 7) + 2 / 7 * log(4 / 7)),
        ({"mixture": 1.0, "likeliest": 1, "tail": True}, 0.0),
        ({"mixture": 0.0, "likeliest": 1, "tail": False}, 0.0),
        (
            {"mixture": 0.5, "likeliest": 1, "tail": False},
            (5 / 7 * log(40 / 34) + 2 / 7 * log(8 / 11) + 0.5 * log(28 / 34) + 0.5 * log(14 / 11)) / 2,
        ),
    ],
)
def test_divergence_over_a_few_words(settings: dict[str, float], expected: float) -> None:
    """The teacher's likeliest word against the rest, the words among themselves, and the sampled word."""
    found = DISTILLATIONS["generalized jsd of a support"](SPARSE, settings)
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_temperature_divides_the_logits() -> None:
    """At a temperature of 2 the shares are square roots, scaled."""
    hot = DISTILLATIONS["generalized jsd"](BATCH, {"mixture": 0.0, "temperature": 2.0})
    root = 3**0.5
    teacher = torch.tensor([1 / (1 + root), root / (1 + root)], dtype=torch.float64)
    assert hot.item() == pytest.approx((teacher * (teacher * 2).log()).sum().item(), abs=1e-6)


def test_universal_distance_compares_the_largest_shares() -> None:
    """Shares 1/2, 1/4, 1/4 of the student against 1/4, 1/4, 1/2 of the teacher: the same, whatever the words."""
    student, teacher = torch.tensor([4.0, 2.0, 2.0]).log(), torch.tensor([1.0, 1.0, 2.0]).log()
    batch = batch_of(torch.ones(1, 1).bool(), logits=student.view(1, 1, 3), ref_logits=teacher.view(1, 1, 3))
    distance = DISTILLATIONS["universal logit distance"]
    assert distance(batch, {}).tolist() == [[pytest.approx(0.0)]]
    assert distance(batch, {"share": 0.5}).tolist() == [[pytest.approx(0.5)]]
