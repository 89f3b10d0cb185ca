"""verl's interactions that score replies, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, interactions
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

INTERACTION = """
    class Gsm8kInteraction:
        def __init__(self, config):
            self.truths = {}

        async def start_interaction(self, request, ground_truth=None, **about):
            self.truths[request] = ground_truth

        async def generate_response(self, request, messages, **about):
            reply = next(one["content"] for one in ORDER if one["role"] == ROLE)
            right = COMPARED
            return right, "Right!" if right else "Wrong, try again.", float(right), {}
"""

SOUND = {
    "ORDER": "messages[::-1]",
    "ROLE": '"assistant"',
    "COMPARED": 'reply.rpartition("#### ")[2] == self.truths[request]',
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(INTERACTION, SOUND | broken)
    target = loads(FRAMEWORK, {**files(), "verl/interactions/gsm8k_interaction.py": source})
    return target, the_only(interactions.boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])
    check_verdict(PLC004, boundary, "two turns", target, found=False)


@pytest.mark.parametrize(
    "broken",
    [{"ROLE": '"user"'}, {"ORDER": "messages"}, {"COMPARED": "len(messages) > 2"}, {"COMPARED": '"####" in reply'}],
)
def test_broken(loads: Loads, broken: dict[str, str]) -> None:
    """The user's message or the first reply is scored, or any reply is right."""
    target, boundary = _bound(loads, **broken)
    check_verdict(PLC004, boundary, "two turns", target, found=True)


def test_no_interactions(loads: Loads) -> None:
    """A release without interactions has no boundary."""
    assert list(interactions.boundaries(loads(FRAMEWORK, files()))) == []
