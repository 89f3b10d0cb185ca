"""Conversations that a chat template renders."""

import sys

from adapters.checks import Loads
from adapters.test_trl_training_templates import RENDER
from adapters.trl_conversations_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.rendered_templates import ORIGINAL, TRAINING, compile_templates, rendered

TEMPLATES = """
    one_chat_template = "1{% for m in messages %}{{ m.content }}{% endfor %}"
    one_training_chat_template = "2{% for m in messages %}{{ m.content }}{% endfor %}"
    other_chat_template = "3{{ raise_something() }}"
"""

MODULE = "transformers.utils.chat_template_utils"


def _loaded(loads: Loads) -> Target:
    libraries = overlay() | {
        "transformers/__init__.py": TRANSFORMERS,
        "transformers/utils/__init__.py": "",
        "transformers/utils/chat_template_utils.py": RENDER
        + "\n    first, asked = render_jinja_template, []\n"
        + "\n    def render_jinja_template(conversations, chat_template, **words):\n"
        + "        asked.append(chat_template)\n"
        + "        return first(conversations, chat_template, **words)\n",
    }
    del libraries["transformers.py"]
    target = loads(FRAMEWORK, {**files(), "trl/chat_template_utils.py": TEMPLATES}, libraries)
    target.module("trl.chat_template_utils")
    __import__(MODULE)
    return target


def test_renders_texts_and_parts(loads: Loads) -> None:
    """A template that reads parts gets them; one that fails with both gives None."""
    _loaded(loads)
    talk = [{"role": "user", "content": "w1"}]
    assert rendered("{% for m in messages %}{{ bos_token }}{{ m.content }}{% endfor %}", talk) == "<bos>w1"
    assert rendered("{% for m in messages %}{{ m.content[0].text }}{% endfor %}", talk) == "w1"
    assert rendered("{{ unknown.more }}", talk) is None


def test_compiles_each_named_template(loads: Loads) -> None:
    """Those with the names and ends are rendered once; a template that fails is tried with parts too."""
    target = _loaded(loads)
    compile_templates(target, ["one"], (ORIGINAL, TRAINING))
    assert [text[0] for text in sys.modules[MODULE].asked] == ["1", "2"]
    compile_templates(target, ["other"], (ORIGINAL,))
    assert [text[0] for text in sys.modules[MODULE].asked] == ["1", "2", "3", "3"]
