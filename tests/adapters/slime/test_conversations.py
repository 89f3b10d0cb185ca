"""slime's loss masks of conversations, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, judged_at
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.kit.chat_template import ChatTokenizer
from rl_sentinel.adapters.kit.conversations import conversation
from rl_sentinel.adapters.slime import FRAMEWORK, conversations
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

UTILS = """
    from itertools import groupby

    class MultiTurnLossMaskGenerator:
        def __init__(self, tokenizer, tokenizer_type):
            self.tokenizer = tokenizer
            question = [{"role": "system", "content": "s"}]
            self.header = len(self.render(question, add_generation_prompt=True)) - len(self.render(question))
            self.before = len(self.render([{"role": "user", "content": "a"}])) - len(self.own("user", "a"))

        def render(self, messages, **options):
            return self.tokenizer.apply_chat_template(messages, tokenize=True, **options)

        def own(self, role, content):
            return self.tokenizer(f"<|im_start|>{role}\\n{content}<|im_end|>\\n")["input_ids"]

        def get_loss_mask(self, messages):
            tokens, mask = [], []
            for role, turn in groupby(messages, key=lambda one: one["role"]):
                turn = list(turn)
                for part in [turn] if role == "tool" and GROUPED else [[one] for one in turn]:
                    own = self.render(part)[0 if role == "system" or not tokens else self.before:]
                    tokens += own
                    size = len(own) - self.header - UNTRAINED
                    mask += [0] * self.header + [1] * size + [0] * UNTRAINED if role == "assistant" else [0] * len(own)
            return tokens, mask
"""


def _bound(loads: Loads, grouped: str = "True", untrained: str = "1") -> tuple[Target, dict[tuple[str, str], Boundary]]:
    source = UTILS.replace("GROUPED", grouped).replace("UNTRAINED", untrained)
    target = loads(FRAMEWORK, {"slime/utils/mask_utils.py": source})
    made = [one for one in conversations.boundaries(target) if isinstance(one, Boundary)]
    return target, {("generator", setting): one for one in made for setting in one.settings}


def test_answers(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert len(boundaries) == 4
    assert answering(boundaries, target) == []


@pytest.mark.slow
def test_round_trips(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    check_round_trips(target, boundaries.values())


@pytest.mark.parametrize("setting", ["qwen", "qwen3, system message"])
@pytest.mark.parametrize(
    ("grouped", "untrained", "found"),
    [
        ("True", "1", ""),
        ("True", "0", ""),
        ("False", "1", "number of tokens that differ from the template"),
        ("True", "2", "number of mask values that differ from the replies"),
    ],
)
def test_found_where_broken_alone(loads: Loads, setting: str, grouped: str, untrained: str, found: str) -> None:
    """Results of tools that are wrapped one by one; a reply whose end is not trained."""
    target, boundaries = _bound(loads, grouped, untrained)
    judgement = judged_at(TOK001, boundaries["generator", setting], setting, target)
    assert judgement.tried > 0
    assert (judgement.found.expectation.output if judgement.found else "") == found


def test_conversation() -> None:
    """The user goes on until someone replied; then tools do."""
    roles = [message["role"] for message in conversation([0, 1, 1, 0, 0, 1])]
    assert roles == ["user", "user", "assistant", "tool", "tool", "assistant"]


def test_template() -> None:
    """Results of tools share a turn, and the template's own message goes first."""
    tokenizer = ChatTokenizer("be brief")
    messages = [
        {"role": "assistant", "content": "look"},
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>assistant\nlook<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    tokens = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert tokenizer.decode(tokens) == tokenizer.decode(torch.tensor(tokens)) == text
    left_out = [{"role": "assistant", "content": "no", "step_loss_mask": 0}]
    assert [trains for _, trains in tokenizer.parts(left_out)] == [False, False, False, False]
