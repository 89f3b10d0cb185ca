"""A word-level tokenizer with a ChatML chat template, for target code that tokenizes conversations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

Message = dict[str, Any]

#: A token is a special token, a tag, a newline, a word or a space. A string, because scripts contain it as source.
_WORDS = r"<\|[a-z_]+\|>|</?[a-z_]+>|\n|[^\s<]+| "

START, END = "<|im_start|>", "<|im_end|>"

#: The role that replies, and the text before its reply.
REPLY, HEADER = "assistant", f"{START}assistant\n"


@dataclass
class ChatTokenizer:
    """A tokenizer whose tokens are words, with the chat template of Qwen models, without reasoning.

    ``system`` is the system message that the template adds to a conversation without one. Consecutive tool results
    share one user turn.
    """

    system: str = ""
    _numbers: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str, **_options: object) -> dict[str, list[int]]:
        """The tokens of a text."""
        return {"input_ids": [self._numbers.setdefault(word, len(self._numbers)) for word in re.findall(_WORDS, text)]}

    @property
    def eos_token_id(self) -> int:
        """The token that ends a message."""
        return self(END)["input_ids"][0]

    def get_added_vocab(self) -> dict[str, int]:
        """An empty vocabulary: there are no tokens of a distilled model."""
        return {}

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        words = {number: word for word, number in self._numbers.items()}
        return "".join(words[token] for token in tokens)

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        **_options: object,
    ) -> Any:  # noqa: ANN401 - a text, or tokens
        """The conversation as text, or as token ids."""
        text = "".join(part for part, _ in self.parts(messages)) + (HEADER if add_generation_prompt else "")
        return self(text)["input_ids"] if tokenize else text

    def parts(self, messages: Sequence[Message]) -> list[tuple[str, bool]]:
        """The text of a conversation in parts, each with a flag: True for a reply (and its end token) that trains."""
        parts: list[tuple[str, bool]] = []
        if self.system and messages[0]["role"] != "system":
            parts.append((f"{START}system\n{self.system}{END}\n", False))
        for role, turn in groupby(messages, key=lambda message: str(message["role"])):
            if role == "tool":
                results = "".join(f"\n<tool_response>\n{one['content']}\n</tool_response>" for one in turn)
                parts.append((f"{START}user{results}{END}\n", False))
                continue
            for message in turn:
                trains = role == REPLY and message.get("step_loss_mask", 1) == 1
                parts += [(f"{START}{role}\n", False), (f"{message['content']}{END}", trains), ("\n", False)]
        return parts
