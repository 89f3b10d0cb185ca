"""Chat templates from files."""

from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.chat_template import read_template, render_template

CHATML = """{{ bos_token }}{% for message in messages %}
    {% if loop.first and message.role == 'tool' %}{{ raise_exception('a tool\\nspeaks first') }}{% endif %}
<|{{ message.role }}|>{{ message.content | trim }}<|end|>
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def test_conversation_is_rendered_up_to_the_response() -> None:
    messages = [{"role": "system", "content": " be brief "}, {"role": "user", "content": "1+1"}]
    assert render_template(CHATML, messages, {"bos_token": "<s>"}) == (
        "<s><|system|>be brief<|end|>\n<|user|>1+1<|end|>\n<|assistant|>"
    )


def test_json_and_texts_are_not_escaped() -> None:
    assert render_template("{{ messages | tojson }}&", [{"role": "user", "content": "<ä>"}], {}) == (
        '[{"role": "user", "content": "<ä>"}]&'
    )


def test_rejected_conversation_is_one_line() -> None:
    with pytest.raises(SentinelError, match=r"chat.template cannot render a conversation \(a tool speaks first\): fix"):
        render_template(CHATML, [{"role": "tool", "content": ""}], {})


@pytest.mark.parametrize(
    "template",
    ["{{ 1 / 0 }}", "{% for n in range(10**9) %}{% endfor %}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"],
)
def test_any_exception_of_a_template_is_one_line(template: str) -> None:
    with pytest.raises(SentinelError, match=r"chat.template cannot render a conversation \(.+\): fix the Jinja file$"):
        render_template(template, [{"role": "user", "content": "1+1"}], {})


def test_template_files(tmp_path: Path) -> None:
    place = tmp_path / "chat.jinja"
    place.write_text(CHATML, encoding="utf-8")
    assert read_template(str(place)) == CHATML
    place.write_text("a\n{% if %}", encoding="utf-8")
    with pytest.raises(SentinelError, match=r"chat.template '.*' line 2 is malformed \(.*\), expected Jinja"):
        read_template(str(place))
    place.write_text(" \n", encoding="utf-8")
    with pytest.raises(SentinelError, match=r"chat.template '.*' is empty, expected Jinja that renders"):
        read_template(str(place))
    with pytest.raises(SentinelError, match=r"chat.template '.*none' cannot be read \(No such file or directory\): na"):
        read_template(str(tmp_path / "none"))
