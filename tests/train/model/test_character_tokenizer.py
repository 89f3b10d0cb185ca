"""The tokenizer of the tiny model."""

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.character_tokenizer import CHARACTERS, END, PADDING, VOCABULARY_SIZE, CharacterTokenizer


def test_text_is_encoded_and_decoded() -> None:
    tokenizer = CharacterTokenizer()
    ids = tokenizer.encode(CHARACTERS)
    assert sorted(ids) == list(range(2, VOCABULARY_SIZE))
    assert tokenizer.decode([*ids, END]) == CHARACTERS
    assert tokenizer.decode([*ids[:2], PADDING]) == "01_"
    assert tokenizer.encode("1$") == (3, END)


def test_unknown_character_is_rejected() -> None:
    with pytest.raises(SentinelError, match=r"text '1z' has 'z', expected characters of '0123"):
        CharacterTokenizer().encode("1z")
