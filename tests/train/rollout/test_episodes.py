"""Episodes: the context of each turn, and the tensors that the signal gets."""

from dataclasses import replace
from typing import Literal

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.character_tokenizer import END, CharacterTokenizer
from rl_sentinel.train.rollout.episodes import (
    Episode,
    UniformDraws,
    attach_baselines,
    lay_out_episodes,
    play_episodes,
    start_episodes,
)
from rl_sentinel.train.rollout.interfaces import Outcome
from training import Letter, ScriptedEngine, TwoParts, TwoTurns

TOKENIZER, DRAWS = CharacterTokenizer(), UniformDraws(0, 0, 2, 4)


def _play_two_turns(turns: int = 2) -> tuple[list[Episode], ScriptedEngine]:
    engine = ScriptedEngine(["a", "b", "", "bb"])
    episodes = start_episodes(TwoTurns(), TOKENIZER, DRAWS, prompts=1, responses=2)
    play_episodes(episodes, engine, TwoTurns(), TOKENIZER, turns=turns, draws=DRAWS)
    return episodes, engine


def test_second_turn_reads_the_first_and_its_reply() -> None:
    _, engine = _play_two_turns()
    ids = TOKENIZER.encode
    assert engine.contexts == [ids("ab")] * 2 + [ids("ab") + ids(response) + (END,) + ids("|") for response in "ab"]


def test_merged_turns_share_one_row() -> None:
    episodes, _ = _play_two_turns()
    laid = lay_out_episodes(episodes, merged=True, padding=0)
    response = (*TOKENIZER.encode("a"), END)
    assert laid.token[0, : int(laid.prompt_length[0] + laid.length[0])].tolist() == [
        *TOKENIZER.encode("ab"), *response, *TOKENIZER.encode("|"), END
    ]  # fmt: skip
    assert isinstance(laid.rollout.mask, torch.Tensor)
    assert laid.rollout.mask.tolist() == [
        [True, True, False, True, False, False],
        [True, True, False, True, True, True],
    ]
    assert laid.rollout.reward.tolist() == [0.0, 2.0]


def test_unmerged_turns_are_rows_of_one_trajectory() -> None:
    episodes, _ = _play_two_turns()
    laid = lay_out_episodes(episodes, merged=False, padding=0)
    assert laid.rollout.reward.tolist() == [0.0, 0.0, 2.0, 2.0]
    assert laid.rollout.last is not None
    assert laid.rollout.trajectory is not None
    assert laid.rollout.last.tolist() == [False, True, False, True]
    assert laid.rollout.trajectory.tolist() == [0, 0, 1, 1]
    assert laid.rollout.group.tolist() == [0, 0, 0, 0]
    assert laid.prompt_length.tolist() == [2, 5, 2, 5]


def test_unended_trajectories_are_rejected_or_suppressed() -> None:
    episodes, _ = _play_two_turns()
    episodes[1].ended = False
    rejected = lay_out_episodes(episodes, merged=False, padding=0, unended="reject").rollout
    suppressed = lay_out_episodes(episodes, merged=False, padding=0, unended="suppress").rollout
    plain = lay_out_episodes(episodes, merged=False, padding=0).rollout
    assert isinstance(rejected.mask, torch.Tensor)
    assert rejected.mask.any(dim=1).tolist() == [True, True, False, False]
    assert suppressed.scored is not None
    assert suppressed.scored.tolist() == [True, True, False, False]
    assert plain.scored is not None
    assert plain.scored.all()
    assert torch.equal(suppressed.reward, plain.reward)


def test_missing_outcome_after_the_last_turn_is_rejected() -> None:
    words = (
        r"^the environment replied with a text in turn 1, expected an Outcome in the last turn: "
        r"return an Outcome by then, or increase rollout.turns$"
    )
    with pytest.raises(SentinelError, match=words):
        _play_two_turns(turns=1)


def test_turns_stop_with_the_last_outcome() -> None:
    episodes, _ = _play_two_turns(turns=10**12)
    assert [e.outcome is None for e in episodes] == [False, False]


def test_turn_without_room_is_rejected() -> None:
    tokenizer = CharacterTokenizer(8)  # a prompt of 2, a response of 2 and the bar: 5, and 4 may follow
    episodes = start_episodes(TwoTurns(), tokenizer, DRAWS, prompts=1, responses=2)
    told = r"^rollout.tokens is 4 after 5 tokens of prompt, responses and replies, expected at most 8 in total: "
    with pytest.raises(SentinelError, match=told):
        play_episodes(episodes, ScriptedEngine(["a", "b", "", "bb"]), TwoTurns(), tokenizer, turns=2, draws=DRAWS)


def test_responses_to_a_prompt_share_its_task() -> None:
    one = start_episodes(Letter("abcdef"), TOKENIZER, UniformDraws(0, 0, 16, 4), prompts=8, responses=2)
    assert [e.task for e in one[::2]] == [e.task for e in one[1::2]]
    assert [e.group for e in one] == [n for n in range(8) for _ in range(2)]
    again, later = (
        start_episodes(Letter("abcdef"), TOKENIZER, UniformDraws(0, s, 16, 4), prompts=8, responses=2) for s in (0, 1)
    )
    assert [e.task for e in one] == [e.task for e in again] != [e.task for e in later]


def test_turns_have_different_random_numbers() -> None:
    first, second = DRAWS.for_turn(0), DRAWS.for_turn(1)
    assert first.shape == (2, 4)
    assert not torch.equal(first, second)


def test_tokens_of_merged_rows_have_their_turn() -> None:
    episodes, _ = _play_two_turns()
    turn = lay_out_episodes(episodes, merged=True, padding=0).rollout.turn
    assert turn is not None
    assert turn.tolist() == [[0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 1, 1]]
    assert lay_out_episodes(episodes, merged=False, padding=0).rollout.turn is None
    for episode in episodes:  # an empty reply: turns are adjacent
        first, second = episode.steps
        episode.steps[1] = replace(second, prompt=first.prompt + first.response)
    laid = lay_out_episodes(episodes, merged=True, padding=0).rollout
    assert isinstance(laid.mask, torch.Tensor)
    assert laid.turn is not None
    assert [row[mask].tolist() for row, mask in zip(laid.turn, laid.mask, strict=True)] == [
        [0, 0, 1],
        [0, 0, 1, 1, 1],
    ]


@pytest.mark.parametrize(("unended", "baseline"), [("train", 2.0), ("suppress", 0.0)])
def test_greedy_reward_is_the_baseline_and_never_trains(unended: Literal["train", "suppress"], baseline: float) -> None:
    episodes = start_episodes(Letter(), TOKENIZER, DRAWS, prompts=2, responses=2)
    episodes += start_episodes(Letter(), TOKENIZER, DRAWS, prompts=2, responses=1, greedy=True)
    assert [e.task for e in episodes[4:]] == [e.task for e in episodes[:4:2]]
    for episode in episodes:
        episode.outcome = Outcome(2.0 + episode.group if episode.greedy else 9.0, correct=False)
    episodes[4].ended = False
    training = attach_baselines(episodes, unended=unended)
    assert training == episodes[:4]
    assert [e.baseline for e in training] == [baseline, baseline, 3.0, 3.0]
    assert [e.baseline for e in attach_baselines(episodes[:4], unended=unended)] == [None] * 4


def test_reward_parts_are_required_by_name() -> None:
    engine = ScriptedEngine(["a", "b"])
    episodes = start_episodes(TwoParts(), TOKENIZER, DRAWS, prompts=1, responses=2)
    play_episodes(episodes, engine, TwoParts(), TOKENIZER, turns=1, draws=DRAWS)
    parts = lay_out_episodes(episodes, merged=True, padding=0).rollout.reward_parts
    assert parts is not None
    torch.testing.assert_close(parts, torch.tensor([[1 / 3, 1.0], [0.0, 1.0]]))
    episodes = start_episodes(Letter(), TOKENIZER, DRAWS, prompts=1, responses=2)
    with pytest.raises(
        SentinelError, match=r"Outcome.parts of the environment has 2 numbers, expected 3, one per name in Env"
    ):
        play_episodes(episodes, ScriptedEngine(["a", "b"]), ThreeParts(), TOKENIZER, turns=1, draws=DRAWS)


class ThreeParts(TwoParts):
    """It names one part more than its outcomes have."""

    parts = (*TwoParts.parts, "nothing")
