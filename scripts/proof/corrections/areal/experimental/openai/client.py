# Corrections of areal/experimental/openai/client.py (1.0.4): a function of which a few expressions are replaced.
# - A turn ends with the stop token that was sampled; EOS stands in its place only while turns are aligned.

import sys

from replaced import replaced


def _with_sampled_stop(parent, parent_tokens):
    if parent is None:
        return parent_tokens
    answer = parent.model_response
    sampled = answer.output_tokens[len(answer.output_tokens_without_stop) :]
    return parent_tokens[:-1] + (sampled or parent_tokens[-1:])


concat_prompt_token_ids_with_parent = replaced(
    sys.modules[__name__],
    "concat_prompt_token_ids_with_parent",
    {"prompt_token_ids = parent_tokens +": "prompt_token_ids = _with_sampled_stop(parent, parent_tokens) +"},
)
