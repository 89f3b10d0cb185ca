"""TRL's training templates next to their originals, on a specimen of both in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, judged_at
from adapters.kit.round_trip import check_calls
from adapters.test_trl_training_templates import RENDER
from adapters.trl_conversations_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, template_variants
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

#: A template that writes arguments as they are if they are a text, and its variant, with marks around replies.
TEMPLATES = """
    every = (
        "{% for m in messages %}{{ m.role }}: OPEN{{ m.content }}{% for call in m.tool_calls or [] %}"
        "{{ call.function.name }} ARGUMENTS{% endfor %}CLOSE{% endfor %}"
    )
    both = (
        "{% if call.function.arguments is string %}{{ call.function.arguments }}"
        "{% else %}{{ call.function.arguments | tojson }}{% endif %}"
    )
    open, close = "{% generation %}", "{% endgeneration %}"
    house_chat_template = every.replace("ARGUMENTS", {original}).replace("OPEN", "").replace("CLOSE", " ")
    house_training_chat_template = (
        every.replace("ARGUMENTS", {variant}).replace("OPEN", open + {before}).replace("CLOSE", {after} + close)
    )

    def get_training_chat_template(processing_class):
        if not processing_class.bos_token or processing_class.chat_template != house_chat_template:
            raise ValueError("no such template")
        return house_training_chat_template
"""

SOUND = {"original": "both", "variant": "both", "before": "''", "after": "' '"}

REPLY, CALL, TEXT = template_variants.MESSAGES


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    code = TEMPLATES
    for name, part in (SOUND | choices).items():
        code = code.replace("{" + name + "}", part)
    libraries = overlay() | {
        "transformers/__init__.py": TRANSFORMERS,
        "transformers/utils/__init__.py": "",
        "transformers/utils/chat_template_utils.py": RENDER.replace("jinja2.StrictUndefined", "jinja2.Undefined"),
    }
    del libraries["transformers.py"]
    target = loads(FRAMEWORK, {**files(), "trl/chat_template_utils.py": code}, libraries)
    return target, by_setting(template_variants.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """Each message is a setting, and each variant has an output."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == [REPLY, CALL, TEXT]
    assert set(boundaries[REPLY].outputs) == {"words", "words of house that differ from the original"}
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ({}, []),
        (
            {"after": "' {{ \\'<user>\\' if loop.last }}'"},
            [],
        ),  # the end token of the turn
        ({"before": "'think '"}, [REPLY, CALL, TEXT]),
        ({"after": "''"}, [REPLY, CALL, TEXT]),
        ({"variant": '"{{ call.function.arguments | tojson }}"'}, [TEXT]),  # the text is quoted again
        ({"variant": '"{{ call.function.arguments.items() | list | length }}"'}, [CALL, TEXT]),
        ({"original": '"{{ [] + 1 }}"'}, []),  # a message that the original refuses
    ],
)
def test_text_of_the_original(loads: Loads, choices: dict[str, str], found: list[str]) -> None:
    """The variant writes what the original writes, whatever the kind of the arguments."""
    target, boundaries = _bound(loads, **choices)
    judged = {name: judged_at(TOK001, one, name, target) for name, one in boundaries.items()}
    assert all(one.tried > 0 for one in judged.values())
    assert [name for name, one in judged.items() if one.found is not None] == found


def test_releases_without_originals(loads: Loads) -> None:
    """A variant is compared only where its original is kept."""
    target = loads(FRAMEWORK, {**files(), "trl/chat_template_utils.py": "house_training_chat_template = ''"}, overlay())
    assert list(template_variants.boundaries(target)) == []
