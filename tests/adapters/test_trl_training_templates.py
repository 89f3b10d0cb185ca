"""TRL's chat templates for training, on a specimen of them in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_conversations_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, training_templates
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

TEMPLATES = """
    house_chat_template = "an original"
    house_training_chat_template = (
        "{% for m in messages %}{{ m.role }} {% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content }}END{% endgeneration %}{% else %}{{ TEXT }}<end>{% endif %}{% endfor %}"
    )

    def get_training_chat_template(processing_class):
        if not processing_class.bos_token or processing_class.chat_template != house_chat_template:
            raise ValueError("no such template")
        return house_training_chat_template
"""

#: A fake of transformers' function that renders a template and finds what is generated.
RENDER = """
    import jinja2

    START, STOP = "\\x00", "\\x01"

    def render_jinja_template(conversations, chat_template, return_assistant_tokens_mask=False, **words):
        marked = chat_template.replace("{% generation %}", START).replace("{% endgeneration %}", STOP)
        text = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(marked).render(
            messages=conversations[0], **words
        )
        parts, plain = [], ""
        for letter in text:
            if letter == START:
                parts.append((len(plain), None))
            elif letter == STOP:
                parts[-1] = (parts[-1][0], len(plain))
            else:
                plain += letter
        return [plain], [parts]
"""


def _bound(loads: Loads, end: str, text: str = "m.content") -> tuple[Target, list[Boundary]]:
    code = TEMPLATES.replace("END", end).replace("TEXT", text)
    libraries = overlay() | {
        "transformers/__init__.py": TRANSFORMERS,
        "transformers/utils/__init__.py": "",
        "transformers/utils/chat_template_utils.py": RENDER,
    }
    del libraries["transformers.py"]
    target = loads(FRAMEWORK, {**files(), "trl/chat_template_utils.py": code}, libraries)
    return target, [b for b in training_templates.boundaries(target) if isinstance(b, Boundary)]


def test_answers_and_reads_back(loads: Loads) -> None:
    """Each variant has an output."""
    target, (boundary,) = _bound(loads, "<end>")
    assert set(boundary.outputs) == {"words", "characters of house that train"}
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("end", "text", "found"),
    [
        ("<end>", "m.content", False),
        ("{{ '<return>' if loop.last else '<end>' }}", "m.content", False),  # a format with two end tokens
        ("{{ '' if loop.last else '<end>' }}", "m.content", True),  # written with the next message only
        ("{{ '<end>' if loop.last }}", "m.content", True),
        ("<end>", "m.content[0].text", False),  # a template that reads the parts of a message
    ],
)
def test_end_of_the_last_reply(loads: Loads, end: str, text: str, found: bool) -> None:
    """A reply trains with its end token also where no message follows."""
    target, (boundary,) = _bound(loads, end, text)
    check_verdict(TOK001, boundary, "the last reply", target, found=found)


def test_releases_without_marks(loads: Loads) -> None:
    """Variants that mark nothing are not asked for what trains."""
    unmarked = TEMPLATES.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    target = loads(FRAMEWORK, {**files(), "trl/chat_template_utils.py": unmarked}, overlay())
    assert list(training_templates.boundaries(target)) == []
