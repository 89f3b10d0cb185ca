"""Prompts: drawn from a data set, encoded, and checked for room."""

import re
from types import SimpleNamespace

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.character_tokenizer import CharacterTokenizer
from rl_sentinel.train.rollout.interfaces import Task
from rl_sentinel.train.rollout.prompts import LONGEST, draw_task, encode_prompt, require_room
from training import Letter, recipe


@pytest.mark.parametrize(
    ("letters", "line"),
    [
        ("Q", "text 'Q' has 'Q', expected characters of '0123456789"),
        ("", "prompt of the environment (row 3) is '', expected one or more tokens"),
        ("abba", "rollout.tokens is 4 after a prompt of 4 tokens (row 3), expected at most 7 in total: reduce rol"),
        ("a" * 7, "rollout.tokens is 4 after a prompt of 7 tokens (row 3), expected at most 7 in total: shorten or "),
    ],
)
def test_prompt_without_room_is_rejected(letters: str, line: str) -> None:
    with pytest.raises(SentinelError, match=f"^{re.escape(line)}"):
        encode_prompt(Letter(), CharacterTokenizer(7), Task(letters, "", source="row 3"), 4)


def test_text_and_ids_of_a_prompt() -> None:
    tokenizer = CharacterTokenizer(7)
    text, ids = encode_prompt(Letter(), tokenizer, Task("ab", ""), 5)
    assert (text, tokenizer.decode(ids)) == ("ab", "ab")


def test_tasks_of_a_data_set_are_numbered_over_the_steps() -> None:
    numbered = SimpleNamespace(numbered_task=lambda number, seed: (number, seed))
    drawn: object = draw_task(numbered, 5, 2, 1, prompts=4)
    assert drawn == (9, 5)
    assert isinstance(draw_task(Letter(), 5, 2, 1, prompts=4), Task)


class _Rows:
    """A data set whose last row is too long; records which are encoded."""

    def __init__(self, size: int) -> None:
        self.size, self.encoded = size, list[str]()

    def numbered_task(self, number: int, seed: int) -> Task:
        assert seed == 0
        return Task("a" * (14 if number == self.size - 1 else 2), "", source=f"row {number}")

    def text(self, task: Task) -> str:
        self.encoded.append(task.source)
        return task.prompt


def test_prompts_that_the_run_draws_are_encoded_before_it() -> None:
    """Two steps of two prompts draw four tasks; of five the last one is too long."""
    four, five, tokenizer = _Rows(4), _Rows(5), CharacterTokenizer(16)
    require_room(five, tokenizer, recipe())  # type: ignore[arg-type]  # all that is read
    assert sorted(five.encoded) == [f"row {n}" for n in range(4)]  # the longest ones are encoded in any case
    with pytest.raises(SentinelError, match=r"after a prompt of 14 tokens \(row 3\), expected at most 16 in total: "):
        require_room(four, tokenizer, recipe())  # type: ignore[arg-type]  # as above
    assert "row 3" in four.encoded
    require_room(Letter(), tokenizer, recipe())


def test_of_many_prompts_only_long_ones_are_encoded() -> None:
    many = _Rows(40)
    with pytest.raises(SentinelError, match=r"\(row 39\)"):
        require_room(many, CharacterTokenizer(16), recipe(steps=40, rollout={"prompts": 1}, update={"prompts": 1}))  # type: ignore[arg-type]  # as above
    assert len(many.encoded) <= LONGEST


def test_a_template_that_repeats_its_message_is_seen_by_the_longest_prompts() -> None:
    class Tripled(_Rows):
        def text(self, task: Task) -> str:
            return 3 * task.prompt

    rows = Tripled(2)
    with pytest.raises(SentinelError, match="after a prompt of 42 tokens"):
        require_room(rows, CharacterTokenizer(40), recipe())  # type: ignore[arg-type]  # as above
