"""Conversations in AReaL's call shapes, in words of our own: sound, and with a stop token that is replaced."""

import pytest

from adapters.areal_specimen import RESPONSE
from adapters.checks import Loads, check_verdict, judged_at
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.conversations import CALLS, FAMILIES, boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

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
    import json

    def concat_prompt_token_ids_with_parent(message_list, parent, tokenizer):
        message_list = [one | {"tool_calls": [_parsed(c) for c in one.get("tool_calls", [])]} for one in message_list]
        if parent is None:
            return tokenizer.apply_chat_template(message_list)
        answer, end = parent.model_response, tokenizer.eos_token_id
        before = answer.input_tokens + answer.output_tokens
        if answer.stop_reason == "length":
            before = before + [end]
        elif REPLACED:
            before = before[:-1] + [end]
        return before + tokenizer.apply_chat_template(message_list)

    def _parsed(call):
        text = call["function"]["arguments"]
        return {"function": {"name": call["function"]["name"], "arguments": ARGUMENTS}}
"""


#: The class of a turn whose prompt is the text of all messages, tokenized again.
FIRST = (
    TYPES.replace("InteractionWithTokenLogpReward", "CompletionWithTokenLogpReward")
    .replace("model_response", "response")
    .replace(
        "        messages: list\n", "        response: object\n        messages: list = field(default_factory=list)\n"
    )
    .replace("        output_message_list: list = field(default_factory=list)\n", "")
)

#: A client that tokenizes the text of the new messages, between delimiters.
DELIMITED = """
    def concat_prompt_token_ids_with_parent(message_list, parent, tokenizer, start, end):
        before = [] if parent is None else parent.model_response.input_tokens + parent.model_response.output_tokens
        texts = [f"{start}{one['role']}\\n{one['content']}{end}\\n" for one in message_list]
        return KEPT + tokenizer.encode("".join(texts))
"""


def _loaded(loads: Loads, *, replaced: bool, arguments: str = "json.loads(text)", **others: str) -> Target:
    client = CLIENT.replace("REPLACED", str(replaced)).replace("ARGUMENTS", arguments)
    tree = {
        "areal/__init__.py": "",
        "areal/api/io_struct.py": RESPONSE,
        "areal/experimental/openai/types.py": TYPES,
        "areal/experimental/openai/client.py": client,
        **{f"areal/experimental/openai/{name}.py": source for name, source in others.items()},
    }
    return loads(FRAMEWORK, tree)


def _bound(loads: Loads, *, replaced: bool, **others: str) -> tuple[Target, Boundary]:
    target = _loaded(loads, replaced=replaced, **others)
    boundary = next(iter(boundaries(target)))
    assert isinstance(boundary, Boundary)
    return target, boundary


@pytest.mark.parametrize("end", FAMILIES)
def test_sound(loads: Loads, end: str) -> None:
    """Every token, mask, log-prob and version stays where it was sampled."""
    target, boundary = _bound(loads, replaced=False)
    check_verdict(PLC004, boundary, end, target, found=False)


def test_replaced_stop_token(loads: Loads) -> None:
    """A padding token that ended a turn, trained as another token."""
    target, boundary = _bound(loads, replaced=True)
    found = judged_at(PLC004, boundary, "padding token", target).found
    assert found is not None
    assert found.expectation.name == "token"
    check_verdict(PLC004, boundary, "end of sequence", target, found=False)


def test_text_of_all_messages(loads: Loads) -> None:
    """A turn's tokens are those of its text, which has no padding token."""
    target, boundary = _bound(loads, replaced=False, types=FIRST, client="")
    assert boundary.path == "areal.experimental.openai.types.CompletionWithTokenLogpReward.to_tensor_dict"
    check_round_trip(target, boundary)
    for end, found in (("end of sequence", False), ("padding token", True)):
        check_verdict(PLC004, boundary, end, target, found=found)


CACHE = """
    class InteractionCache(dict):
        def _build_parent_child_relationships(self):
            raise NotImplementedError
"""


def test_parents_by_their_tokens(loads: Loads) -> None:
    """A turn whose prompt has other tokens than its parent gets no parent, so that this setting does not exist."""
    _, boundary = _bound(loads, replaced=False, types=FIRST, client="", cache=CACHE)
    assert set(boundary.settings) == {"end of sequence", "cut off"}


@pytest.mark.parametrize(("kept", "found"), [("before", False), ("before[:-1]", True)])
def test_text_between_delimiters(loads: Loads, kept: str, found: bool) -> None:
    """The tokens of earlier turns stay as they were sampled."""
    target, boundary = _bound(loads, replaced=False, client=DELIMITED.replace("KEPT", kept))
    check_verdict(PLC004, boundary, "end of sequence", target, found=found)


def test_round_trip(loads: Loads) -> None:
    """The arguments are read back into the columns."""
    target, boundary = _bound(loads, replaced=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(("arguments", "found"), [("json.loads(text)", False), ("text", True)])
def test_arguments_of_a_call(loads: Loads, arguments: str, *, found: bool) -> None:
    """The template renders them as an object, not as a text in quotation marks."""
    target = _loaded(loads, replaced=False, arguments=arguments)
    (_, boundary) = boundaries(target)
    assert isinstance(boundary, Boundary)
    check_round_trip(target, boundary)
    (setting,) = CALLS
    check_verdict(PLC004, boundary, setting, target, found=found)


def test_a_client_without_a_template_has_no_calls(loads: Loads) -> None:
    target = _loaded(loads, replaced=False, client=DELIMITED.replace("KEPT", "before"))
    assert [set(one.settings) for one in boundaries(target) if isinstance(one, Boundary)] == [set(FAMILIES)]
