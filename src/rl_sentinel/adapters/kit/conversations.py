"""Make conversations from a batch, and count how tokens and mask of a tokenized one differ from its template."""

from itertools import groupby
from typing import Any

from rl_sentinel.adapters.kit.chat_template import REPLY, ChatTokenizer, Message
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use


def conversation(mask: list[int], answer: str = "tool") -> list[Message]:
    """A question, then a reply for each run of trained tokens, and a message of its own for each token between.

    ``answer`` is the role of what answers a reply; before the first reply the user goes on.
    """
    messages: list[Message] = [{"role": "user", "content": "what is it"}]
    role = "user"
    for trained, run in groupby(mask):
        words = [f"word{position}" for position, _ in enumerate(run)]
        if trained:
            messages.append({"role": REPLY, "content": " ".join(words)})
            role = answer
        else:
            messages += [{"role": role, "content": word} for word in words]
    return messages


def differences(
    tokenizer: ChatTokenizer, messages: list[Message], tokens: list[int], mask: list[int]
) -> tuple[float, float]:
    """At how many tokens a conversation differs from its template; and its mask from the replies, where none does.

    The line break after a reply may be trained or not.
    """
    parts = [(tokenizer(text)["input_ids"], trains) for text, trains in tokenizer.parts(messages)]
    free = tokenizer("\n")["input_ids"]
    replies = [trains or None if part == free else trains for part, trains in parts for _ in part]
    unlike = _unlike(tokens, [token for part, _ in parts for token in part])
    return unlike, 0.0 if unlike else _unlike([bool(one) for one in mask], replies)


def difference_outputs(place: Use) -> dict[str, Output]:
    """The two counts of each conversation, in the dict at a place."""
    form = PerRow("list")
    return {
        "tokens unlike the template": Output("B", "tokens", "tokens_off_template", at=place["tokens"], form=form),
        "mask unlike the replies": Output("B", "tokens", "mask_off_replies", at=place["masks"], form=form),
    }


def _unlike(found: list[Any], wanted: list[Any]) -> float:
    """Positions at which two lists differ, None being equal to all, and those that only one of them has."""
    unlike = sum(w is not None and f != w for f, w in zip(found, wanted, strict=False))
    return float(unlike + abs(len(found) - len(wanted)))
