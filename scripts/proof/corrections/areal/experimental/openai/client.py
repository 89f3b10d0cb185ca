# Corrections of areal/experimental/openai/client.py (1.0.4): functions of which a few expressions are replaced.
# - A turn ends with the stop token that was sampled; EOS stands in its place only while turns are aligned.
# - A chat template gets the arguments of tool calls as objects, not as the JSON text of OpenAI's API.

import json
import sys
from contextlib import suppress

from replaced import replaced


def _with_sampled_stop(parent, parent_tokens):
    if parent is None:
        return parent_tokens
    answer = parent.model_response
    sampled = answer.output_tokens[len(answer.output_tokens_without_stop) :]
    return parent_tokens[:-1] + (sampled or parent_tokens[-1:])


def _with_parsed_arguments(messages):
    messages = deepcopy(messages)
    for function in (call.get("function", {}) for message in messages for call in message.get("tool_calls") or []):
        with suppress(KeyError, TypeError, ValueError):  # objects and invalid JSON stay
            function["arguments"] = json.loads(function["arguments"])
    return messages


concat_prompt_token_ids_with_parent = replaced(
    sys.modules[__name__],
    "concat_prompt_token_ids_with_parent",
    {
        "prompt_token_ids = parent_tokens +": "prompt_token_ids = _with_sampled_stop(parent, parent_tokens) +",
        "        all_message_list,\n": "        _with_parsed_arguments(all_message_list),\n",
    },
)

_MESSAGES = "messages_for_tokenizer if has_images else messages_list"
for _owner in (AsyncCompletionsWithReward, AsyncResponsesWithReward):
    _owner.create = replaced(_owner, "create", {_MESSAGES: f"_with_parsed_arguments({_MESSAGES})"})
