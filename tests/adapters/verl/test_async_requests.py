"""Requests of several turns for SGLang's rollout, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, async_requests
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

REQUEST = """
    from types import SimpleNamespace

    from transformers import PreTrainedTokenizer

    BASE = [{"role": "system", "content": "base"}, {"role": "user", "content": "question"}]

    class AsyncRolloutRequest:
        model_fields = {"input_ids": SimpleNamespace(annotation=list)}

        def __init__(self, messages, tokenizer, **about):
            assert isinstance(tokenizer, PreTrainedTokenizer)
            self.messages = list(messages)
            render = tokenizer.apply_chat_template
            self.input_ids = render(messages, add_generation_prompt=True)
            self.prompt = self.input_ids[len(render(messages)):]
            self.before = len(render(BASE))
            self.loss_mask = [0] * len(self.input_ids)
            self.position_ids = list(range(len(self.input_ids)))

        def _add(self, ids, trains):
            self.input_ids = self.input_ids + ids
            self.loss_mask = self.loss_mask + [trains] * len(ids)
            first = self.position_ids[-1] + STEP
            self.position_ids = self.position_ids + list(range(first, first + len(ids)))

        def _ends_with_prompt(self):
            return self.input_ids[-len(self.prompt):] == self.prompt

        def get_generation_prompt_ids(self, tokenizer):
            if not self._ends_with_prompt():
                self._add(self.prompt, PROMPT)
            return self.input_ids

        def add_assistant_message(self, tokenizer, content, content_ids=None):
            self.messages.append({"role": "assistant", "content": content})
            whole = tokenizer.apply_chat_template([*BASE, self.messages[-1]])[self.before + len(self.prompt):]
            self._add(whole, 1)

        def add_tool_response_messages(self, tokenizer, contents):
            added = [{"role": "tool", "content": content} for content in contents]
            self.messages += added
            for part in PARTS:
                self._add(tokenizer.apply_chat_template([*BASE, *part])[self.before:], 0)

        def finalize(self, tokenizer, reward_scores):
            self.reward_scores = reward_scores
"""
SOUND = {"STEP": "1", "PARTS": "[added]", "PROMPT": "0"}


def _bound(loads: Loads, **words: str) -> tuple[Target, Boundary]:
    source = rewritten(REQUEST, SOUND | words)
    tree = {
        "verl/workers/rollout/schemas.py": source,
        "verl/workers/rollout/sglang_rollout/sglang_rollout.py": "make = lambda **a: AsyncRolloutRequest(**a)\n",
        "transformers/__init__.py": "class PreTrainedTokenizer:\n    pass\n",
    }
    target = loads(FRAMEWORK, tree)
    boundary = the_bound(async_requests.boundaries(target))
    return target, boundary


def test_reads_back(loads: Loads) -> None:
    """The request answers, and its call is read back."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({}, False),
        ({"STEP": "0"}, True),  # positions of a turn begin at the last position
        ({"PARTS": "[[one] for one in added]"}, True),  # a turn per result
        ({"PROMPT": "1"}, True),  # headers of replies train
    ],
)
def test_tokens_of_a_request(loads: Loads, words: dict[str, str], *, found: bool) -> None:
    target, boundary = _bound(loads, **words)
    check_verdict(TOK001, boundary, "tools", target, found=found)
