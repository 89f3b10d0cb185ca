"""Build chat conversations from masks, and compare their tokenization with the chat template."""

from itertools import groupby
from typing import Any

from rl_sentinel.adapters.kit.chat_template import REPLY, ChatTokenizer, Message
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use


def conversation(mask: list[int], answer: str = "tool") -> list[Message]:
    """A conversation: first a user message, then a reply per run of trained tokens and a message per untrained token.

    ``answer`` is the role of the messages after a reply; before the first reply the role is ``user``.
    """
    messages: list[Message] = [{"role": "user", "content": "question"}]
    role = "user"
    for trained, run in groupby(mask):
        words = [f"word{position}" for position, _ in enumerate(run)]
        if trained:
            messages.append({"role": REPLY, "content": " ".join(words)})
            role = answer
        else:
            messages += [{"role": role, "content": word} for word in words]
    return messages


def differences(  # noqa: PLR0913 - a conversation, its tokens, and how it was cut
    tokenizer: ChatTokenizer,
    messages: list[Message],
    tokens: list[int],
    mask: list[int],
    kept: slice = slice(None),
    *,
    after_end: bool | None = None,
) -> tuple[float, float]:
    """Two counts: tokens that differ from the chat template, and mask values that do not mark exactly the replies.

    The second count is 0 if any token differs. The newline after a reply or a user message may be trained or not,
    unless ``after_end`` says which. ``kept`` is the part of the conversation that remains under a length limit.
    """
    parts = [(tokenizer(text)["input_ids"], trains) for text, trains in tokenizer.parts(messages)]
    free = tokenizer("\n")["input_ids"]
    replies = [trains or after_end if part == free else trains for part, trains in parts for _ in part]
    wrong_tokens = _count_differences(tokens, [token for part, _ in parts for token in part][kept])
    return wrong_tokens, 0.0 if wrong_tokens else _count_differences([bool(one) for one in mask], replies[kept])


def difference_outputs(use: Use) -> dict[str, Output]:
    """Outputs for the two counts of :func:`differences` per conversation, in the dict at ``use``."""
    form = PerRow("list")
    return {
        "number of tokens that differ from the template": Output(
            "B", "tokens", "tokens_off_template", at=use["tokens"], form=form
        ),
        "number of mask values that differ from the replies": Output(
            "B", "tokens", "mask_off_replies", at=use["masks"], form=form
        ),
    }


def _count_differences(observed: list[Any], expected: list[Any]) -> float:
    """The number of positions at which two lists differ; an expected None matches any value."""
    differing = sum(e is not None and o != e for o, e in zip(observed, expected, strict=False))
    return float(differing + abs(len(observed) - len(expected)))
