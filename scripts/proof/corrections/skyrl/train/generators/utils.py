# Corrections of skyrl/train/generators/utils.py (0.3.0): a function of which a few expressions are replaced.
# - Results of tools that follow each other are given to the template together.

import sys

from replaced import replaced

_ONE = "encode_messages_subset([cur_message], tokenizer, tokenizer_kwargs=tokenizer_kwargs)"
_TURN = "encode_messages_subset(_turn(messages, i), tokenizer, tokenizer_kwargs=tokenizer_kwargs)"


def _turn(messages, number):
    """The messages of one turn; none for a result of a tool that follows another one."""
    if messages[number]["role"] != "tool":
        return [messages[number]]
    if number and messages[number - 1]["role"] == "tool":
        return []
    end = next((n for n in range(number, len(messages)) if messages[n]["role"] != "tool"), len(messages))
    return messages[number:end]


get_response_ids_and_loss_mask_from_messages = replaced(
    sys.modules[__name__],
    "get_response_ids_and_loss_mask_from_messages",
    {_ONE: f"({_TURN} if _turn(messages, i) else [])"},
)
