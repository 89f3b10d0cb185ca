"""Conversations in AReaL's call shapes, in words of our own: sound, and with a stop token that is replaced."""

from collections.abc import Callable

import pytest

from adapters.checks import judged_at
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.conversations import FAMILIES, boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]

STRUCT = """
    from dataclasses import dataclass, field
    from types import SimpleNamespace

    @dataclass
    class ModelResponse:
        input_tokens: list
        output_tokens: list
        output_logprobs: list
        output_versions: list
        stop_reason: str = "stop"
        tokenizer: object = None
"""

TYPES = """
    from dataclasses import dataclass, field

    import torch

    @dataclass
    class InteractionWithTokenLogpReward:
        messages: list
        parent: object = None
        chat_template_type: str = "hf"
        model_response: object = None
        output_message_list: list = field(default_factory=list)

        @property
        def remaining_messages(self):
            before = len(self.parent.messages + self.parent.output_message_list) if self.parent else 0
            return self.messages[before:]

        def to_tensor_dict(self):
            own = self.model_response
            before = {"loss_mask": [], "logprobs": [], "versions": []}
            if self.parent is not None:
                rows = self.parent.to_tensor_dict()
                before = {name: rows[name][0].tolist() for name in before}
            gap = len(own.input_tokens) - len(before["loss_mask"])
            parts = {
                "loss_mask": before["loss_mask"] + [0] * gap + [1] * len(own.output_tokens),
                "logprobs": before["logprobs"] + [0.0] * gap + own.output_logprobs,
                "versions": before["versions"] + [-1] * gap + own.output_versions,
                "input_ids": own.input_tokens + own.output_tokens,
            }
            return {name: torch.tensor([part]) for name, part in parts.items()}
"""

CLIENT = """
    def concat_prompt_token_ids_with_parent(message_list, parent, tokenizer):
        if parent is None:
            return tokenizer.apply_chat_template(message_list)
        answer, end = parent.model_response, tokenizer.eos_token_id
        before = answer.input_tokens + answer.output_tokens
        if answer.stop_reason == "length":
            before = before + [end]
        elif REPLACED:
            before = before[:-1] + [end]
        return before + tokenizer.apply_chat_template(message_list)
"""


def _bound(loads: Loads, *, replaced: bool) -> tuple[Target, Boundary]:
    tree = {
        "areal/__init__.py": "",
        "areal/api/io_struct.py": STRUCT,
        "areal/experimental/openai/types.py": TYPES,
        "areal/experimental/openai/client.py": CLIENT.replace("REPLACED", str(replaced)),
    }
    target = loads(FRAMEWORK, tree)
    (boundary,) = boundaries(target)
    assert isinstance(boundary, Boundary)
    return target, boundary


@pytest.mark.parametrize("end", FAMILIES)
def test_sound(loads: Loads, end: str) -> None:
    """Every token, mask, log-prob and version stays where it was sampled."""
    target, boundary = _bound(loads, replaced=False)
    judgement = judged_at(PLC004, boundary, end, target)
    assert judgement.tried > 0
    assert judgement.found is None


def test_replaced_stop_token(loads: Loads) -> None:
    """A padding token that ended a turn, trained as another token."""
    target, boundary = _bound(loads, replaced=True)
    found = judged_at(PLC004, boundary, "padding token", target).found
    assert found is not None
    assert found.expectation.name == "token"
    assert judged_at(PLC004, boundary, "end of sequence", target).found is None


def test_round_trip(loads: Loads) -> None:
    """The arguments are read back into the columns."""
    target, boundary = _bound(loads, replaced=False)
    check_round_trip(target, boundary)
