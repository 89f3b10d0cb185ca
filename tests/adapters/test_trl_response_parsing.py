"""TRL's parsers of replies, on a specimen of them in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, judged_at
from adapters.kit.round_trip import check_calls
from adapters.test_trl_training_templates import RENDER
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, response_parsing
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

#: A template that writes each call on a line of its own, and the parser of it.
MODULE = """
    import json

    house_chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for call in {calls} %}"
        "call {{ call.function.name }} {{ call.function.arguments | tojson }};{% endfor %}<end>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    unknown_chat_template = "a template without a parser"

    def add_response_schema(tokenizer):
        if tokenizer.chat_template == house_chat_template:
            tokenizer.response_template = {"calls": "call NAME ARGUMENTS;"}
        return tokenizer

    def parse_response(tokenizer, ids, prefix=None, tools=None):
        content, *lines = tokenizer.decode(ids).removesuffix("<end>").split("call ")
        calls = []
        for line in lines:
            name, arguments = line.removesuffix(";").split(" ", 1)
            {more}
            calls.append({"function": {"name": name, "arguments": {kept}}})
        return {"role": "assistant", "content": {text}, "tool_calls": {found}}
"""

SOUND = {
    "calls": "m.tool_calls or []",
    "more": "pass",
    "kept": "json.loads(arguments)",
    "found": "calls",
    "text": "content",
}

#: A tokenizer whose tokens are characters.
TRANSFORMERS = """
    class PreTrainedTokenizerFast:
        def __init__(self, tokenizer_object, **special):
            self.backend_tokenizer = tokenizer_object

        def __call__(self, text, add_special_tokens=True):
            return {"input_ids": [ord(letter) for letter in text]}

        def decode(self, ids):
            return "".join(map(chr, ids))
"""

TOKENIZERS = """
    from types import SimpleNamespace

    def part(*arguments, **options):
        return SimpleNamespace()

    Tokenizer = Regex = part
    part.alphabet = list
    models = SimpleNamespace(WordLevel=part)
    decoders = SimpleNamespace(ByteLevel=part)
    pre_tokenizers = SimpleNamespace(Split=part, ByteLevel=part, Sequence=part)
"""

KINDS = [f"arguments that are {kind}" for kind in response_parsing.KINDS]
TEXTS = ["replies with texts", "replies with texts before calls"]


def _bound(loads: Loads, module: str = MODULE, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    code = module
    for name, part in (SOUND | choices).items():
        code = code.replace("{" + name + "}", part)
    render = RENDER.replace("chat_template, return_assistant_tokens_mask,", "chat_template,")
    libraries = overlay() | {
        "tokenizers.py": TOKENIZERS,
        "transformers/__init__.py": TRANSFORMERS,
        "transformers/utils/__init__.py": "",
        "transformers/utils/chat_template_utils.py": render.replace("jinja2.StrictUndefined", "jinja2.Undefined"),
    }
    del libraries["transformers.py"]
    tree = {"trl/__init__.py": "", "trl/chat_template_utils.py": code}
    target = loads(FRAMEWORK, tree, libraries)
    return target, by_setting(response_parsing.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """Each kind of argument is a setting, and each template with a parser an output."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == KINDS + TEXTS
    assert {name for one in boundaries.values() for name in one.outputs} == {"token of house"}
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(
    ("choices", "lost"),
    [
        ({}, []),
        ({"kept": "arguments"}, []),  # as a JSON text, which the loop may still read
        ({"found": "calls[:1]"}, KINDS),
        ({"found": "calls * 2"}, KINDS),
        ({"found": "None"}, KINDS),
        ({"kept": "{k: int(v) if str(v).isdigit() else v for k, v in json.loads(arguments).items()}"}, KINDS[2:]),
        ({"calls": "(m.tool_calls or [])[:1]", "found": "calls[:1]"}, []),  # the template loses them
        ({"calls": "[] + 1"}, []),  # it refuses them
    ],
)
def test_calls_of_a_reply(loads: Loads, choices: dict[str, str], lost: list[str]) -> None:
    """All calls that a template writes are parsed, in order, with arguments of the type of the tool's schema."""
    target, boundaries = _bound(loads, **choices)
    judged = {name: judged_at(PLC004, boundaries[name], name, target) for name in KINDS}
    assert all(one.tried > 0 for one in judged.values())
    assert [name for name, one in judged.items() if one.found is not None] == lost


@pytest.mark.parametrize(
    ("choices", "lost"),
    [
        ({}, []),
        ({"text": 'content + "\\n"'}, TEXTS),
        ({"text": 'content + ("\\n" if calls else "")'}, TEXTS[1:]),
        ({"text": '"" if calls else content'}, TEXTS[1:]),
        ({"text": '"", "thinking": content'}, []),
    ],
)
def test_text_of_a_reply(loads: Loads, choices: dict[str, str], lost: list[str]) -> None:
    """The text that a template writes is parsed as it is, also before a call."""
    target, boundaries = _bound(loads, **choices)
    judged = {name: judged_at(PLC004, boundaries[name], name, target) for name in TEXTS}
    assert all(one.tried > 0 for one in judged.values())
    assert [name for name, one in judged.items() if one.found is not None] == lost


def test_releases_with_another_format(loads: Loads) -> None:
    """A format that is neither a template nor a schema is not tried."""
    tree = {
        "trl/__init__.py": "",
        "trl/chat_template_utils.py": MODULE.replace("tokenizer.response_template", "tokenizer.response_grammar"),
    }
    assert list(response_parsing.boundaries(loads(FRAMEWORK, tree, overlay()))) == []


#: A parser that leaves the work to transformers, which reads a reply by a schema.
BY_SCHEMA = """
    house_chat_template = (
        "{% for m in messages %}{{ m.role }}: {% for call in m.tool_calls or [] %}"
        "<call>{{ call.function | tojson }}</call>{% endfor %}<end>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    house_schema = {
        "type": "object",
        "properties": {
            "role": {"const": "assistant"},
            "tool_calls": {
                "type": "array",
                {pattern},
                "items": {
                    "type": "object",
                    "x-parser": "json",
                    "x-parser-args": {"transform": "{type: 'function', function: @}"},
                },
            },
        },
    }

    def add_response_schema(tokenizer):
        assert tokenizer.chat_template == house_chat_template
        tokenizer.response_schema = house_schema
        return tokenizer

    def parse_response(tokenizer, ids):
        try:
            return tokenizer.parse_response(ids)
        except ValueError:
            return {"role": "assistant", "content": tokenizer.decode(ids)}
"""


@pytest.mark.parametrize(
    ("pattern", "lost"),
    [
        ('"x-regex-iterator": "<call>(.*?)</call>"', []),
        ('"x-regex-iterator": "<call>(.*)</call>"', KINDS),
        ('"x-regex": "(?:<end>)*(<nothing>)"', KINDS),
    ],
)
def test_replies_read_by_a_schema(loads: Loads, pattern: str, lost: list[str]) -> None:
    """A pattern that takes several calls as one, and a pattern that finds no call."""
    target, boundaries = _bound(loads, module=BY_SCHEMA.replace("{pattern}", pattern))
    assert list(boundaries) == KINDS + TEXTS
    check_calls(target, boundaries.values())
    found = [kind for kind in KINDS if judged_at(PLC004, boundaries[kind], kind, target).found is not None]
    assert found == lost
