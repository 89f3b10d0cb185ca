"""SkyRL's conversations, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK, conversations
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

UTILS = """
    from itertools import groupby

    BASE = [{"role": "user", "content": "base"}]

    def parts(messages):
        for role, turn in groupby(messages, key=lambda one: one["role"]):
            turn = list(turn)
            yield from [turn] if role == "tool" and GROUPED else [[one] for one in turn]

    def get_response_ids_and_loss_mask_from_messages(messages, tokenizer, assistant_logprobs=None):
        before, tokens, mask = tokenizer.apply_chat_template(BASE), [], []
        header = len(tokenizer.apply_chat_template(BASE, add_generation_prompt=True)) - len(before)
        for part in parts(messages):
            own = tokenizer.apply_chat_template([*BASE, *part])[len(before):]
            replies = part[0]["role"] == "assistant"
            tokens += own
            end = own.index(tokenizer.eos_token_id) + PAST  # tokens after the EOS are not trained
            mask += [int(replies and header <= at <= end) for at in range(len(own))]
        return tokens, mask, None
"""

SFT = """
    from skyrl.train.generators.utils import get_response_ids_and_loss_mask_from_messages

    def _tokenize_chat_all_assistants(messages, tokenizer, max_length=None):
        first = [message["role"] for message in messages].index("assistant")
        prompt = tokenizer.apply_chat_template(messages[:first])
        tokens, mask, _ = get_response_ids_and_loss_mask_from_messages(messages[first:], tokenizer)
        return {"input_ids": prompt + tokens, "num_actions": len(mask), "loss_mask": mask}
"""


def _bound(loads: Loads, grouped: str = "True", past: str = "0") -> tuple[Target, dict[tuple[str, str], Boundary]]:
    files = {
        "skyrl/train/generators/utils.py": UTILS.replace("GROUPED", grouped).replace("PAST", past),
        "skyrl/train/sft_trainer.py": SFT,
    }
    target = loads(FRAMEWORK, files)
    made = [one for one in conversations.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.path.rpartition(".")[2], setting): one for one in made for setting in one.settings}


def test_answers(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert len(boundaries) == 4
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(
    ("grouped", "name", "found"),
    [
        ("True", "_tokenize_chat_all_assistants", False),
        ("False", "_tokenize_chat_all_assistants", True),
        ("False", "get_response_ids_and_loss_mask_from_messages", False),
    ],
)
def test_results_of_tools_share_a_turn(loads: Loads, grouped: str, name: str, found: bool) -> None:
    """Environments answer with messages of the user, each of which has a turn of its own."""
    target, boundaries = _bound(loads, grouped)
    check_verdict(TOK001, boundaries[name, "default"], "default", target, found=found)


@pytest.mark.parametrize(("past", "found"), [("0", False), ("1", True)])
def test_token_after_the_end_of_a_reply(loads: Loads, past: str, found: bool) -> None:
    """The newline after a reply was not sampled, and the function says that it is not trained."""
    target, boundaries = _bound(loads, past=past)
    name = "get_response_ids_and_loss_mask_from_messages"
    check_verdict(TOK001, boundaries[name, "default"], "default", target, found=found)
