"""Sessions of AReaL's agents, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.areal_specimen import RESPONSE
from adapters.checks import Loads, answering, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK, sessions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

TYPES = """
    from dataclasses import dataclass
    from typing import Any

    import torch

    @dataclass
    class InteractionWithTokenLogpReward:
        messages: list
        completion: Any
        chat_template_type: str
        model_response: Any = None
        output_message_list: Any = None
        reward: Any = None

        def to_tensor_dict(self):
            own = self.model_response
            before, after = len(own.input_tokens), len(own.output_tokens)
            row = {
                "input_ids": own.input_tokens + own.output_tokens,
                "loss_mask": [0] * before + [1] * after,
                "logprobs": [0.0] * before + own.output_logprobs,
                "versions": [-1] * before + own.output_versions,
                "attention_mask": [True] * (before + after),
            }
            return {**{k: torch.tensor([v]) for k, v in row.items()}, "rewards": torch.tensor([float(self.reward)])}
"""

CACHE = """
    class InteractionCache(dict):
        def set_reward(self, name, reward):
            self[name].reward = reward

        def apply_reward_discount(self, turn_discount):
            later = 0.0
            for one in ORDER:
                later = CREDIT
                one.reward = later

        def export_interactions(self, style):
            return {name: one for name, one in self.items() if EXPORTED}
"""

SOUND = {
    "ORDER": "reversed(list(self.values()))",
    "CREDIT": "one.reward + turn_discount * later",
    "EXPORTED": "one.output_message_list is not None",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(CACHE, SOUND | broken)
    tree = {
        "areal/__init__.py": "",
        "areal/api/io_struct.py": RESPONSE,
        "areal/experimental/openai/types.py": TYPES,
        "areal/experimental/openai/cache.py": source,
    }
    target = loads(FRAMEWORK, tree)
    boundary = the_bound(sessions.boundaries(target))
    return target, boundary


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert answering({("session", setting): boundary for setting in boundary.settings}, target) == []
    for setting in boundary.settings:
        check_verdict(PLC004, boundary, setting, target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    "broken",
    [
        {"ORDER": "list(self.values())"},
        {"CREDIT": "one.reward or turn_discount * later"},
        {"CREDIT": "turn_discount * (one.reward + later)"},
        {"EXPORTED": "one.completion.id != 'turn-1'"},
    ],
)
def test_broken_session(loads: Loads, broken: dict[str, str]) -> None:
    """Discounted from the wrong end, not added up, discounted too often, and a turn that is not exported."""
    target, boundary = _bound(loads, **broken)
    check_verdict(PLC004, boundary, "discounted", target, found=True)
