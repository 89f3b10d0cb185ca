"""The vocabulary of the tiny model."""

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.character_tokenizer import END, LETTERS, PADDING, SIZE, Characters


def test_text_goes_there_and_back() -> None:
    """Every character; the end is no text, and padding that was said is seen."""
    characters = Characters()
    ids = characters.ids(LETTERS)
    assert sorted(ids) == list(range(2, SIZE))
    assert characters.text([*ids, END]) == LETTERS
    assert characters.text([*ids[:2], PADDING]) == "01_"


def test_conversation_is_written_with_its_ends() -> None:
    """As the warm start of several turns shows it."""
    assert Characters().ids("1$") == (3, END)


def test_unknown_character_is_refused() -> None:
    """With the character."""
    with pytest.raises(SentinelError, match=r"text '1z' holds 'z', expected characters of '0123"):
        Characters().ids("1z")
