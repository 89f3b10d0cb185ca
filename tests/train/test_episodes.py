"""Trajectories: who reads what, and what is handed to the signal."""

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.characters import END, Characters
from rl_sentinel.train.episodes import Chances, Episode, laid, opened, played
from training import Letter, Scripted, Twice

TEXT, CHANCES = Characters(), Chances(0, 0, 2, 4)


def _twice(turns: int = 2) -> tuple[list[Episode], Scripted]:
    engine = Scripted(["a", "b", "", "bb"])
    episodes = opened(Twice(), TEXT, CHANCES, prompts=1, responses=2)
    played(episodes, engine, Twice(), TEXT, turns=turns, chances=CHANCES)
    return episodes, engine


def test_second_turn_reads_the_first_and_its_answer() -> None:
    """Prompt, what was said with its end, and the environment's words."""
    _, engine = _twice()
    ids = TEXT.ids
    assert engine.read == [ids("ab")] * 2 + [ids("ab") + ids(said) + (END,) + ids("|") for said in "ab"]


def test_steps_are_merged_into_one_row() -> None:
    """Each token is trained once; the environment's are not trained."""
    episodes, _ = _twice()
    whole = laid(episodes, merged=True, padding=0)
    said = (*TEXT.ids("a"), END)
    assert whole.token[0, : int(whole.prompt_length[0] + whole.length[0])].tolist() == [
        *TEXT.ids("ab"), *said, *TEXT.ids("|"), END
    ]  # fmt: skip
    assert isinstance(whole.rollout.mask, torch.Tensor)
    assert whole.rollout.mask.tolist() == [
        [True, True, False, True, False, False],
        [True, True, False, True, True, True],
    ]
    assert whole.rollout.reward.tolist() == [0.0, 2.0]


def test_steps_stay_rows_of_their_own() -> None:
    """The outcome stands on each, the last is marked, and trajectories are told apart."""
    episodes, _ = _twice()
    apart = laid(episodes, merged=False, padding=0)
    assert apart.rollout.reward.tolist() == [0.0, 0.0, 2.0, 2.0]
    assert apart.rollout.last is not None
    assert apart.rollout.trajectory is not None
    assert apart.rollout.last.tolist() == [False, True, False, True]
    assert apart.rollout.trajectory.tolist() == [0, 0, 1, 1]
    assert apart.rollout.group.tolist() == [0, 0, 0, 0]
    assert apart.prompt_length.tolist() == [2, 5, 2, 5]


def test_what_did_not_end_is_rejected_or_void() -> None:
    """As a whole: every turn of its trajectory; the others stay."""
    episodes, _ = _twice()
    episodes[1].ended = False
    rejected = laid(episodes, merged=False, padding=0, unended="reject").rollout
    void = laid(episodes, merged=False, padding=0, unended="suppress").rollout
    plain = laid(episodes, merged=False, padding=0).rollout
    assert isinstance(rejected.mask, torch.Tensor)
    assert rejected.mask.any(dim=1).tolist() == [True, True, False, False]
    assert void.scored is not None
    assert void.scored.tolist() == [True, True, False, False]
    assert plain.scored is not None
    assert plain.scored.all()
    assert torch.equal(void.reward, plain.reward)


def test_no_outcome_after_the_last_turn_is_refused() -> None:
    """Rather than trained without a reward."""
    with pytest.raises(
        SentinelError, match=r"environment gave no outcome after turn 1, expected one: raise rollout.turns"
    ):
        _twice(turns=1)


def test_responses_to_a_prompt_share_its_task() -> None:
    """And steps set other tasks; the same step sets the same."""
    one = opened(Letter("abcdef"), TEXT, Chances(0, 0, 16, 4), prompts=8, responses=2)
    assert [e.task for e in one[::2]] == [e.task for e in one[1::2]]
    assert [e.group for e in one] == [n for n in range(8) for _ in range(2)]
    again, later = (opened(Letter("abcdef"), TEXT, Chances(0, s, 16, 4), prompts=8, responses=2) for s in (0, 1))
    assert [e.task for e in one] == [e.task for e in again] != [e.task for e in later]


def test_turns_draw_other_numbers() -> None:
    """So that a second turn does not repeat the first."""
    first, second = CHANCES.of_turn(0), CHANCES.of_turn(1)
    assert first.shape == (2, 4)
    assert not torch.equal(first, second)
