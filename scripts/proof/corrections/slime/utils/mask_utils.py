# Corrections of slime/utils/mask_utils.py (624b824a8): a method of which a few expressions are replaced.
# - Results of tools that follow each other are one turn of the user, as in the template of Qwen 2.5.

import itertools

from replaced import replaced


def _turns(messages):
    turns = []
    for is_tool, same in itertools.groupby(messages, key=lambda message: message["role"] == "tool"):
        turns += [list(same)] if is_tool else [[message] for message in same]
    return turns


MultiTurnLossMaskGenerator.gen_multi_turn_loss_mask_qwen = replaced(
    MultiTurnLossMaskGenerator,
    "gen_multi_turn_loss_mask_qwen",
    {
        "for i, message in enumerate(messages):": "for i, turn in enumerate(_turns(messages)):\n        message = turn[0]",
        "[message], tokenize": "turn, tokenize",
    },
)
