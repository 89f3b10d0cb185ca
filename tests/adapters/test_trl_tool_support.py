"""TRL's check of chat templates, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_conversations_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, tool_support
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CHECK = """
    def supports_tool_calling(processing_class):
        call = {"type": "function", "function": {"name": "tool", "arguments": {"of": "what"}}}
        talk = [
            {"role": "user", "content": "ask"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": "tool", "content": "found"},
        ]
        try:
            text = processing_class.apply_chat_template(talk, tokenize=False).split("user ask")[-1]
        except Exception:
            return False
        text = text.replace("tool found", "found")  # the role of the answer
        return all(word in text for word in {words})
"""

EVERY = '("tool", "of", "what", "found")'


def _bound(loads: Loads, words: str) -> tuple[Target, Boundary, Boundary]:
    tree = {**files(), "trl/chat_template_utils.py": CHECK.replace("{words}", words)}
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS})
    check, exchange = tool_support.boundaries(target)
    assert isinstance(check, Boundary)
    assert isinstance(exchange, Boundary)
    return target, check, exchange


def test_answers_and_reads_back(loads: Loads) -> None:
    """The templates are settings; the check takes some and refuses others."""
    target, *both = _bound(loads, EVERY)
    check_calls(target, both)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (EVERY, False),
        ('("found",)', True),  # the calls may be missing
        ('("tool", "of", "what")', True),  # the answer may be
        ('("tool", "found")', True),  # the arguments may be
        ('("tool", "of", "what", "found", "more")', True),  # no template is good enough
    ],
)
def test_parts_of_the_exchange(loads: Loads, words: str, found: bool) -> None:
    """A template that drops a part of a call or its answer does not support tools; all others do."""
    target, boundary, _ = _bound(loads, words)
    check_verdict(CFG003, boundary, next(iter(boundary.settings)), target, found=found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "lost"),
    [
        (EVERY, []),
        ('("found",)', ["drops calls", "drops names", "drops arguments"]),
        ('("tool", "of", "what")', ["drops results"]),
        ('("of", "what", "found")', ["drops names"]),
        ('("tool", "of", "what", "found", "more")', []),  # nothing is trained on
    ],
)
def test_tokens_of_an_exchange(loads: Loads, words: str, lost: list[str]) -> None:
    """A template that the check lets pass keeps all tokens of a call and its result."""
    target, _, boundary = _bound(loads, words)
    judged = {name: judged_at(PLC004, boundary, name, target) for name in boundary.settings}
    assert all(one.tried > 0 for one in judged.values())
    found = [name for name, one in judged.items() if one.found is not None]
    assert found == [f"{tool_support.EXCHANGE}{name}" for name in lost]
