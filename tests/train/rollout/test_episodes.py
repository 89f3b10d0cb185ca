"""Trajectories: who reads what, and what is handed to the signal."""

import random
import re
from dataclasses import replace
from typing import Literal

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.character_tokenizer import END, Characters
from rl_sentinel.train.rollout.episodes import Chances, Episode, compared, laid, opened, played
from rl_sentinel.train.rollout.interfaces import Outcome, Task
from training import Letter, Marked, Scripted, Twice

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


@pytest.mark.parametrize(
    ("letters", "line"),
    [
        ("Q", "environment gave what cannot be read (text 'Q' holds 'Q', expected characters of '0123456789"),
        ("", "environment gave the prompt '', expected one or more tokens to read"),
        ("abba", "rollout.tokens is 4 behind a prompt of 4 tokens, expected at most 7 in all: lower it, or take more"),
    ],
)
def test_prompt_without_room_is_refused(letters: str, line: str) -> None:
    """Before it is read."""

    class Same(Letter):
        def task(self, rng: random.Random) -> Task:  # noqa: ARG002 - asked with it
            return Task(letters, "")

    with pytest.raises(SentinelError, match=f"^{re.escape(line)}"):
        opened(Same(), Characters(7), CHANCES, prompts=1, responses=2)


def test_turns_end_with_the_last_outcome() -> None:
    """However many there may be."""
    episodes, _ = _twice(turns=10**12)
    assert [e.outcome is None for e in episodes] == [False, False]


def test_turn_without_room_is_refused() -> None:
    """What was said and answered counts."""
    text = Characters(8)  # two letters, one said, its end, the bar: five, and four may follow
    episodes = opened(Twice(), text, CHANCES, prompts=1, responses=2)
    with pytest.raises(SentinelError, match=r"^rollout.tokens is 4 behind a prompt of 5 tokens, expected at most 8"):
        played(episodes, Scripted(["a", "b", "", "bb"]), Twice(), text, turns=2, chances=CHANCES)


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


def test_tokens_of_merged_rows_know_their_turn() -> None:
    """Whatever an answer between them says; rows of their own have none."""
    episodes, _ = _twice()
    turn = laid(episodes, merged=True, padding=0).rollout.turn
    assert turn is not None
    assert turn.tolist() == [[0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 1, 1]]
    assert laid(episodes, merged=False, padding=0).rollout.turn is None
    for episode in episodes:  # an answer without a token: turns stand side by side
        first, second = episode.steps
        episode.steps[1] = replace(second, prompt=first.prompt + first.response)
    whole = laid(episodes, merged=True, padding=0).rollout
    assert isinstance(whole.mask, torch.Tensor)
    assert whole.turn is not None
    assert [row[mask].tolist() for row, mask in zip(whole.turn, whole.mask, strict=True)] == [
        [0, 0, 1],
        [0, 0, 1, 1, 1],
    ]


@pytest.mark.parametrize(("unended", "told"), [("train", 2.0), ("suppress", 0.0)])
def test_greedy_response_is_compared_with_and_never_trains(unended: Literal["train", "suppress"], told: float) -> None:
    """Its reward stands beside each of its prompt's; a void one is 0."""
    episodes = opened(Letter(), TEXT, CHANCES, prompts=2, responses=2)
    episodes += opened(Letter(), TEXT, CHANCES, prompts=2, responses=1, greedy=True)
    assert [e.task for e in episodes[4:]] == [e.task for e in episodes[:4:2]]
    for episode in episodes:
        episode.outcome = Outcome(2.0 + episode.group if episode.greedy else 9.0, correct=False)
    episodes[4].ended = False
    found = compared(episodes, unended=unended)
    assert found == episodes[:4]
    assert [e.baseline for e in found] == [told, told, 3.0, 3.0]
    assert [e.baseline for e in compared(episodes[:4], unended=unended)] == [None] * 4


def test_parts_that_were_named_are_asked_for() -> None:
    """One number for each, and none where none was named."""
    engine = Scripted(["a", "b"])
    episodes = opened(Marked(), TEXT, CHANCES, prompts=1, responses=2)
    played(episodes, engine, Marked(), TEXT, turns=1, chances=CHANCES)
    parts = laid(episodes, merged=True, padding=0).rollout.reward_parts
    assert parts is not None
    torch.testing.assert_close(parts, torch.tensor([[1 / 3, 1.0], [0.0, 1.0]]))
    episodes = opened(Letter(), TEXT, CHANCES, prompts=1, responses=2)
    with pytest.raises(SentinelError, match=r"environment gave 2 parts of a reward, expected 3, one for each of Env"):
        played(episodes, Scripted(["a", "b"]), Thrice(), TEXT, turns=1, chances=CHANCES)


class Thrice(Marked):
    """It names one part more than it gives."""

    parts = (*Marked.parts, "nothing")
