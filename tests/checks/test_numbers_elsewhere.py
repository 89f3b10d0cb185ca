"""Numbers that are no parameters are found in the code; a formula without its numbers is not compared, visibly."""

from types import SimpleNamespace
from typing import Any

import pytest

import rl_sentinel
from checks import numbers_elsewhere as own
from quick import slow_after

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

_GRPO: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo"}
_LOSS: dict[str, Any] = {"stage": "policy-loss", "algorithm": "grpo", "claims": {"aggregation": "token-mean"}}
_TRAINER = own.Trainer()


@pytest.mark.parametrize(
    ("function", "options"),
    slow_after(
        6,
        [
            (_TRAINER.gae, {"stage": "advantage", "algorithm": "gae"}),
            (_TRAINER.by_position, _GRPO),
            (_TRAINER.later, _GRPO),
            (own.by_samples, _GRPO),
            (_TRAINER.compute_loss, _LOSS),
            (_TRAINER.accumulated, _LOSS),
            (own.accumulated, _LOSS),
            (own.of_indices, {"stage": "logprob"}),
            (own.ppo, _LOSS),
            (own.literal, _LOSS),
            (own.offset, _LOSS),
            (own.configured, {**_LOSS, "bind": {"args": SimpleNamespace(clip_range=0.15)}}),
            (own.closure(), _LOSS),
            (own.dual_clip, _LOSS),
            (own.of_table, {**_LOSS, "bind": {"config": {"clip_ratio": 0.37}}}),
        ],
    ),
)
def test_sound_functions_equal_their_formula(function: Any, options: dict[str, Any]) -> None:
    result = rl_sentinel.check(function, budget=4, **options)
    assert (result.ok, result.findings) == (True, ()), result
    assert [v.outcome for v in result.verdicts if v.law == "REF001"] == ["holds"]


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (_TRAINER.by_batch, _GRPO),
        (_TRAINER.swapped_bounds, _LOSS),
        (own.dual_clip_of_gains, _LOSS),
        (own.unclipped_gains, {**_LOSS, "bind": {"eps_clip": 0.37}}),
    ],
)
def test_faults_with_such_numbers_are_found(function: Any, options: dict[str, Any]) -> None:
    assert "REF001" in {f.code for f in rl_sentinel.check(function, laws=["REF001"], **options).faults}


def test_accumulation_that_was_set_to_one_is_reported_and_left_as_it_was() -> None:
    result = rl_sentinel.check(_TRAINER.accumulated, budget=2, laws=["REF001"], **_LOSS)
    assert [*result.notes] == [
        "current_gradient_accumulation_steps is set to 1 in the check: one step holds the whole batch"
    ]
    assert _TRAINER.current_gradient_accumulation_steps == 4


def test_literals_are_reported() -> None:
    (note,) = rl_sentinel.check(own.literal, budget=2, laws=["REF001"], **_LOSS).notes
    assert note.startswith("the function agrees with its formula for these numbers: ")
    assert note.endswith('state them with numbers={"clip_low": 0.2, "clip_high": 0.3}')


def test_module_is_checked_by_its_forward() -> None:
    result = rl_sentinel.check(own.Loss(), budget=4, **_LOSS)
    assert (result.ok, result.findings, result.name) == (True, (), "checks.numbers_elsewhere.Loss.forward")


def test_unknown_number_makes_the_check_inconclusive() -> None:
    with pytest.raises(
        AssertionError, match=r'needs clip_low and clip_high: state numbers=\{"clip_low": \.\.\.'
    ) as raised:
        rl_sentinel.assert_sound(own.hidden, budget=2, **_LOSS)
    assert "hidden: 1 of 29 laws could not be checked: not compared with the formula of ppo" in str(raised.value)
    other = rl_sentinel.check(own.beside_other_literals, budget=2, **_LOSS)
    assert (other.ok, other.findings) == (False, ()), other
    numbers = {"clip_low": 4 / 30, "clip_high": 4 / 30}
    assert rl_sentinel.assert_sound(own.hidden, budget=2, numbers=numbers, **_LOSS).ok


def test_a_loss_of_logits_is_compared_with_its_formula() -> None:
    result = rl_sentinel.check(own.of_logits, budget=2, **_LOSS)
    assert (result.ok, result.findings) == (True, ())
    assert "REF001" in {v.law for v in result.verdicts if v.outcome == "holds"}


@pytest.mark.parametrize(
    ("function", "apart"),
    [(_TRAINER.loss_of_rewards, "advantages"), (own.weighted, "weight")],
)
def test_loss_that_does_more_than_its_formula_is_not_compared(function: Any, apart: str) -> None:
    result = rl_sentinel.check(function, budget=2, **_LOSS)
    assert (result.ok, result.faults) == (False, ())
    assert result.errored[0].endswith(
        f"check the function of the {apart} and that of the policy loss separately, or state no algorithm"
    )
