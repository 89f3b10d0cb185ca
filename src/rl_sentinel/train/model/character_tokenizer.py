"""The tokenizer of the tiny model: thirty characters, the end token and padding."""

from collections.abc import Sequence

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.train.model.chat_template import Message, render_template

#: Token ids of padding, and of the end of a response.
PADDING, END = 0, 1

#: The character for the end token, in texts that show a conversation.
END_CHARACTER = "$"

#: The characters, in the order of their ids, from 2 on.
CHARACTERS = "0123456789+-*/=><?:;.,| abcdef"

#: Size of the vocabulary, a count.
VOCABULARY_SIZE = len(CHARACTERS) + 2


class CharacterTokenizer:
    """Encodes one token per character; the end of a response is a separate token."""

    padding = PADDING
    ends = (END,)
    end_texts = (END_CHARACTER,)

    def __init__(self, positions: int | None = None) -> None:
        """Store ``positions``, the longest sequence of the model in tokens; None if it is unlimited."""
        self.positions = positions

    def encode(self, text: str) -> tuple[int, ...]:
        """The token ids of a text; ``$`` is the end token.

        Raises:
            SentinelError: if a character is not in the vocabulary.
        """
        unknown = [c for c in text if c not in CHARACTERS and c != END_CHARACTER]
        if unknown:
            raise SentinelError(f"text {shortened(text)} has {unknown[0]!r}, expected characters of {CHARACTERS!r}")
        return tuple(END if c == END_CHARACTER else CHARACTERS.index(c) + 2 for c in text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without end tokens; padding, which a policy should not sample, is ``_``."""
        return "".join("_" if i == PADDING else CHARACTERS[i - 2] for i in ids if i != END)

    def render(self, messages: Sequence[Message], template: str | None) -> str:
        """Render a conversation.

        Raises:
            SentinelError: without a template, since this tokenizer has none, or if the template fails.
        """
        if template is None:
            fix = "the tokenizer of the tiny policy has no template"
            raise SentinelError(f'chat.template is "tokenizer" without policy.load, expected a Jinja file: {fix}')
        return render_template(template, messages, {})
