"""Thirty characters, the end of a turn, and padding: the vocabulary of the tiny model."""

from collections.abc import Sequence

from rl_sentinel.core.errors import SentinelError

#: What stands where there is no token, and what ends a response.
PADDING, END = 0, 1

#: How the end of a turn is written in a text that shows a conversation.
TURN = "$"

#: Characters in the order of their ids, from 2 on.
LETTERS = "0123456789+-*/=><?:;.,| abcdef"

#: Size of the vocabulary, a count.
SIZE = len(LETTERS) + 2


class Characters:
    """Text to token ids and back; the end of a response is a token of its own.

    Example:
        >>> from rl_sentinel.train.model.character_tokenizer import END, Characters
        >>> characters = Characters()
        >>> characters.ids("31>"), characters.text([5, 3, END])
        ((5, 3, 17), '31')
    """

    padding = PADDING
    end = END
    size = SIZE

    def __init__(self, positions: int | None = None) -> None:
        """``positions`` is the longest sequence that its model reads, in tokens; None where nothing bounds it."""
        self.positions = positions

    def ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text; ``$`` is the end of a turn.

        Raises:
            SentinelError: if a character is none of the vocabulary.
        """
        unknown = [c for c in text if c not in LETTERS and c != TURN]
        if unknown:
            raise SentinelError(f"text {text!r} holds {unknown[0]!r}, expected characters of {LETTERS!r}")
        return tuple(END if c == TURN else LETTERS.index(c) + 2 for c in text)

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, without ends; padding, which nobody should say, is ``_``."""
        return "".join("_" if i == PADDING else LETTERS[i - 2] for i in ids if i != END)
