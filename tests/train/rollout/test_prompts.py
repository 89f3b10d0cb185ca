"""Prompts: drawn from a data set, encoded, and checked for room."""

import re
from types import SimpleNamespace

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.character_tokenizer import CharacterTokenizer
from rl_sentinel.train.rollout.interfaces import Task
from rl_sentinel.train.rollout.prompts import draw_task, encode_prompt, require_room
from training import Letter, recipe


@pytest.mark.parametrize(
    ("letters", "line"),
    [
        ("Q", "text 'Q' has 'Q', expected characters of '0123456789"),
        ("", "prompt of the environment (row 3) is '', expected one or more tokens"),
        ("abba", "rollout.tokens is 4 after a prompt of 4 tokens (row 3), expected at most 7 in total: lower it, "),
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
    """A data set whose last row is too long; counts how many are encoded."""

    def __init__(self, size: int) -> None:
        self.size, self.encoded = size, list[str]()

    def numbered_task(self, number: int, seed: int) -> Task:
        assert seed == 0
        return Task("a" * (14 if number == self.size - 1 else 2), "", source=f"row {number}")

    def text(self, task: Task) -> str:
        self.encoded.append(task.source)
        return task.prompt


def test_only_long_texts_are_encoded_of_the_tasks_that_the_run_draws() -> None:
    """Two steps of two prompts draw four tasks; of five the last one is too long."""
    four, five, tokenizer = _Rows(4), _Rows(5), CharacterTokenizer(16)
    require_room(five, tokenizer, recipe())  # type: ignore[arg-type]  # all that is read
    assert five.encoded == []
    with pytest.raises(SentinelError, match=r"after a prompt of 14 tokens \(row 3\), expected at most 16 in total: "):
        require_room(four, tokenizer, recipe())  # type: ignore[arg-type]  # as above
    assert four.encoded == ["row 3"]
    require_room(Letter(), tokenizer, recipe())
