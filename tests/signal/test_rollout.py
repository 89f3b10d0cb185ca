"""The record that the path begins with, and steps laid out as one."""

from collections.abc import Callable

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.rollout import Rollout, laid_out
from rl_sentinel.signal.trajectory_step import Step

ROW = {"reward": torch.zeros(2), "group": torch.zeros(2, dtype=torch.long), "mask": torch.ones(2, 3).bool()}

#: What is changed, and how the refusal begins.
WRONG = {
    "mask of numbers": ({"mask": torch.ones(2, 3)}, "mask has dtype float32, expected bool"),
    "another number of rows": (
        {"mask": torch.ones(3, 3).bool()},
        "mask has shape [3, 3], expected [B, T] with B = 2, as in reward",
    ),
    "log-probs of another width": ({"old_logprob": torch.zeros(2, 4)}, "old_logprob has shape [2, 4], expected [2, 3]"),
    "groups of numbers": ({"group": torch.zeros(2)}, "group has dtype float32, expected an integer dtype"),
    "parts without an axis": ({"reward_parts": torch.zeros(2)}, "reward_parts has shape [2], expected"),
    "parts of other rows": (
        {"reward_parts": torch.zeros(3, 2)},
        "reward_parts has shape [3, 2], expected [B, K] with B = 2, as in reward",
    ),
    "half a trajectory": ({"last": torch.ones(2).bool()}, "last is given alone, expected trajectory and last"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals(name: str) -> None:
    changed, told = WRONG[name]
    with pytest.raises(InputError) as refused:
        Rollout(**{**ROW, **changed})
    assert str(refused.value).startswith(told)


def _step(name: str, *, last: bool) -> Step:
    return Step(name, (1,), (2,), (True,), (0.0,), (-1.0,), last)


KNOWN: dict[str, dict[str, float]] = {"reward": {"a": 1.0}, "group": {"a": 0}, "scored": {"a": True}}

UNTOLD: dict[str, tuple[Callable[[], list[Step]], dict[str, dict[str, float]], str]] = {
    "nothing": (list, {}, "steps is empty, expected at least one step"),
    "no reward": (
        lambda: [_step("a", last=True)],
        {"reward": {}},
        "reward has no entry for trajectory a, expected an entry for each trajectory",
    ),
    "a prompt that is no number": (
        lambda: [_step("a", last=True)],
        {"group": {"a": 0.5}},
        "group[a] is 0.5, expected",
    ),
    "a tail without its flag": (lambda: [_step("a", last=False)], {}, "trajectory a stops at a step that is not last"),
}


@pytest.mark.parametrize("name", UNTOLD)
@pytest.mark.parametrize("merged", [False, True])
def test_steps_that_do_not_add_up(name: str, merged: bool) -> None:
    steps, changed, told = UNTOLD[name]
    with pytest.raises(InputError) as refused:
        laid_out(steps(), **{**KNOWN, **changed}, merged=merged, padding=0)  # type: ignore[arg-type]  # words of the table
    assert str(refused.value).startswith(told)
