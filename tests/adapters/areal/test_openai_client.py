"""Calls of AReaL's OpenAI client, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.areal_specimen import RESPONSE
from adapters.checks import Loads, answering, judged_at, rewritten
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK, openai_client
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CLIENT = """
    from types import SimpleNamespace

    import torch

    class Turn:
        reward = None

        def __init__(self, answer):
            self.answer = answer

        def to_tensor_dict(self):
            assert self.reward is not None
            one = self.answer
            before, after = len(one.input_tokens), len(one.output_tokens)
            row = {
                "input_ids": one.input_tokens + one.output_tokens,
                "loss_mask": TRAINED,
                "logprobs": [0.0] * before + one.output_logprobs,
                "versions": [-1] * before + one.output_versions,
            }
            return {key: torch.tensor([value]) for key, value in row.items()}

    class Calls:
        async def ask(self, messages, **numbers):
            ids = self.tokenizer.apply_chat_template(messages)
            request = SimpleNamespace(input_ids=ids, gconfig=SimpleNamespace(**numbers))
            self._cache["call"] = Turn(await self.engine.agenerate(request))

    class AsyncCompletionsWithReward(Calls):
        async def create(
            self, *, messages, temperature=1.0, top_p=1.0, max_completion_tokens=None, max_tokens=None
        ):
            most = max_completion_tokens or LIMIT
            await self.ask(messages, temperature=temperature, top_p=top_p, max_new_tokens=most)

    def plain(item):
        content = item.get("content")
        if isinstance(content, list):
            return PARTS
        if item.get("type") == "function_call_output":
            return [{"role": "tool", "content": item["output"]}]
        return [item]

    class AsyncResponsesWithReward(Calls):
        async def create(self, *, input, temperature=1.0, top_p=1.0, max_output_tokens=None):
            items = [{"role": "user", "content": input}] if isinstance(input, str) else input
            messages = [message for item in items for message in plain(item)]
            await self.ask(messages, temperature=temperature, top_p=SAMPLED, max_new_tokens=max_output_tokens)

    READS = ("input_text", "output_text")
"""

SOUND = {
    "TRAINED": "[0] * before + [1] * after",
    "LIMIT": "max_tokens",
    "PARTS": '[{"role": item["role"], "content": part["text"]} for part in content]',
    "SAMPLED": "top_p",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(CLIENT, SOUND | broken)
    tree = {
        "areal/__init__.py": "",
        "areal/api/io_struct.py": RESPONSE,
        "areal/experimental/openai/client.py": source,
    }
    target = loads(FRAMEWORK, tree)
    bound = [one for one in openai_client.boundaries(target) if isinstance(one, Boundary)]
    named = {f"{one.path.split('.')[-2][5:9]}: {setting}": one for one in bound for setting in one.settings}
    return target, named


def _found(target: Target, boundary: Boundary) -> bool:
    law = CFG004 if boundary.stage == "config" else PLC004
    judgement = judged_at(law, boundary, next(iter(boundary.settings)), target)
    assert judgement.tried > 0
    return judgement.found is not None


def test_sound(loads: Loads) -> None:
    target, bound = _bound(loads)
    assert set(bound) == {
        *("Comp: messages", "Comp: sampling", "Comp: max_tokens", "Resp: text", "Resp: messages", "Resp: sampling"),
        *("Resp: input_text", "Resp: output_text", "Resp: function_call_output"),
    }
    assert answering({(name, setting): one for name, one in bound.items() for setting in one.settings}, target) == []
    assert [name for name, boundary in bound.items() if _found(target, boundary)] == []
    check_round_trip(target, bound["Resp: output_text"])


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ({"LIMIT": "max_tokens - 9"}, {"Comp: max_tokens"}),
        ({"SAMPLED": "1.0"}, {"Resp: sampling"}),
        ({"PARTS": "content"}, {"Resp: input_text", "Resp: output_text"}),
        ({"PARTS": '[{**part, "role": "user"} for part in content]'}, {"Resp: input_text", "Resp: output_text"}),
        ({'"tool"': '"user"'}, {"Resp: function_call_output"}),
    ],
)
def test_broken(loads: Loads, broken: dict[str, str], names: set[str]) -> None:
    """A limit that counts the prompt, a lost parameter, parts without a role or content, and another role."""
    target, bound = _bound(loads, **broken)
    assert {name for name, boundary in bound.items() if _found(target, boundary)} == names


def test_broken_row(loads: Loads) -> None:
    target, bound = _bound(loads, TRAINED="[1] * (before + after)")
    assert _found(target, bound["Comp: messages"])
