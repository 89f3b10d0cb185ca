"""A word-level tokenizer with a ChatML chat template, for target code that tokenizes conversations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

Message = dict[str, Any]

#: A token is a special token, a tag, a newline, a word or a space. A string, because scripts contain it as source.
_WORDS = r"<\|[a-z_]+\|>|</?[a-z_]+>|\n|[^\s<]+| "

START, END = "<|im_start|>", "<|im_end|>"

#: The role that replies, and the text before its reply.
REPLY, HEADER = "assistant", f"{START}assistant\n"


@dataclass
class ChatTokenizer:
    """A tokenizer with one token per word, and with the chat template of Qwen models without reasoning.

    ``system`` is the system message that the template adds to a conversation without a system message; a template
    option of this name replaces it. Consecutive tool results share one user turn.
    """

    system: str = ""
    _numbers: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str, **_options: object) -> dict[str, list[int]]:
        """The tokens of a text."""
        return {"input_ids": [self._numbers.setdefault(word, len(self._numbers)) for word in re.findall(_WORDS, text)]}

    @property
    def eos_token(self) -> str:
        """The text that ends a message."""
        return END

    @property
    def eos_token_id(self) -> int:
        """The token that ends a message."""
        return self(END)["input_ids"][0]

    def get_added_vocab(self) -> dict[str, int]:
        """An empty dict: the tokenizer has no added tokens, so that it is not mistaken for a distilled model."""
        return {}

    @property
    def pad_token_id(self) -> int:
        """The padding token, which is the token that ends a message, as for models without a padding token."""
        return self.eos_token_id

    def encode(self, text: str, **_options: object) -> list[int]:
        """The tokens of a text, without special tokens."""
        return self(text)["input_ids"]

    def convert_tokens_to_ids(self, word: str) -> int:
        """The token of a word."""
        return self(word)["input_ids"][0]

    def decode(self, tokens: Sequence[int] | Tensor, *, skip_special_tokens: bool = False) -> str:
        """The text of token ids, with or without the tokens that begin and end a message."""
        words = {number: word for word, number in self._numbers.items()}
        text = "".join(words[int(token)] for token in tokens)
        return text.replace(START, "").replace(END, "") if skip_special_tokens else text

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        return_tensors: str | None = None,
        return_dict: bool = False,
        **options: Any,  # noqa: ANN401 - as the template's user likes
    ) -> Any:  # noqa: ANN401 - a text, or tokens
        """The conversation as a text, or as token ids in a list, in a tensor with one row, or in a dict with a mask."""
        parts = self.parts(messages, options.get("system"))
        text = "".join(part for part, _ in parts) + (HEADER if add_generation_prompt else "")
        if not tokenize:
            return text
        ids: Any = self(text)["input_ids"]
        ids = torch.tensor([ids]) if return_tensors else ids
        mask = torch.ones_like(ids) if return_tensors else [1] * len(ids)
        return {"input_ids": ids, "attention_mask": mask} if return_dict else ids

    def parts(self, messages: Sequence[Message], system: str | None = None) -> list[tuple[str, bool]]:
        """The text of a conversation in parts, each with a flag: True for a reply (and its end token) that trains."""
        parts: list[tuple[str, bool]] = []
        added = self.system if system is None else system
        if added and messages[0].get("role") != "system":
            parts.append((f"{START}system\n{added}{END}\n", False))
        known = [message for message in messages if "role" in message]  # the template ignores an empty message
        for role, turn in groupby(known, key=lambda message: str(message["role"])):
            if role == "tool":
                results = "".join(f"\n<tool_response>\n{one['content']}\n</tool_response>" for one in turn)
                parts.append((f"{START}user{results}{END}\n", False))
                continue
            for message in turn:
                trains = role == REPLY and message.get("step_loss_mask", 1) == 1
                parts += [(f"{START}{role}\n", False), (f"{message['content']}{END}", trains), ("\n", False)]
        return parts
