"""Prompts and replies in a chat template."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.config.settings import ChatSettings
from rl_sentinel.train.model.character_tokenizer import CharacterTokenizer
from rl_sentinel.train.rollout.chat import apply_chat
from rl_sentinel.train.rollout.episodes import UniformDraws, play_episodes, start_episodes
from rl_sentinel.train.rollout.interfaces import Environment, Outcome, Task
from training import Letter, ScriptedEngine, TwoTurns, recipe

#: A user's message in angles, an assistant's as it is, each with an end.
TEMPLATE = "{% for m in messages %}{{ '<' + m.content + '>' if m.role != 'assistant' else m.content }}${% endfor %}="


class Calls(TwoTurns):
    """Two turns whose tool's text is a message of letters."""

    def task(self, rng: random.Random) -> Task:  # noqa: ARG002 - part of the interface
        return Task("ab", "")

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:  # noqa: ARG002 - as above
        return "cc" if len(responses) == 1 else Outcome(1.0, correct=True)


@pytest.fixture
def settings(tmp_path: Path) -> ChatSettings:
    place = tmp_path / "chat.jinja"
    place.write_text(TEMPLATE)
    return ChatSettings(template=str(place), system="+")


def _wrapped(inner: Environment, settings: ChatSettings) -> Environment:
    return apply_chat(inner, settings, CharacterTokenizer())


def test_turns_have_one_end_between_them(settings: ChatSettings) -> None:
    """The response's own end token is not repeated; a response that was cut gets one."""
    environment, tokenizer, draws = _wrapped(Calls(), settings), CharacterTokenizer(), UniformDraws(0, 0, 1, 4)
    (episode,) = start_episodes(environment, tokenizer, draws, prompts=1, responses=1)
    assert episode.text == "<+>$<ab>$="
    engine = ScriptedEngine(["d", "e"])
    play_episodes([episode], engine, environment, tokenizer, turns=2, draws=draws)
    assert engine.contexts[1] == tokenizer.encode("<+>$<ab>$=d$<cc>$=")
    assert "".join(episode.transcript) == "d<cc>$=e"
    assert environment.reply(episode.task, ("d",), ended=False) == "$<cc>$="


def test_tasks_that_are_conversations_keep_their_system_prompt(settings: ChatSettings) -> None:
    environment = _wrapped(Calls(), settings)
    messages = ({"role": "system", "content": "-"}, {"role": "user", "content": "a"})
    text = environment.text(Task("a", "", messages))  # type: ignore[attr-defined]  # an optional member
    assert text == "<->$<a>$="


def test_other_members_are_the_environment_s_own(settings: ChatSettings) -> None:
    environment = _wrapped(Letter("b"), settings)
    assert environment.letters == "b"  # type: ignore[attr-defined]  # its own
    assert not hasattr(environment, "numbered_task")
    assert apply_chat(None, settings, CharacterTokenizer()) is None
    inner = Letter()
    assert apply_chat(inner, None, CharacterTokenizer()) is inner


def test_template_without_earlier_turns_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("{{ messages[0].content }}")
    environment = _wrapped(Calls(), ChatSettings(template=str(tmp_path / "chat.jinja")))
    words = (
        "^chat template leaves out or changes an earlier response, expected all turns: set chat.template to a "
        "Jinja file that renders all turns$"
    )
    with pytest.raises(SentinelError, match=words):
        environment.reply(Task("ab", ""), ("d",), ended=True)


def test_invalid_chat_is_reported_before_a_model_is_built(tmp_path: Path, settings: ChatSettings) -> None:
    with pytest.raises(SentinelError, match=r"chat.template is \"tokenizer\" without policy.load, expected a Jinja"):
        select_components(recipe(chat={}))
    with pytest.raises(SentinelError, match=r"chat.template '.*none' cannot be read"):
        select_components(recipe(chat={"template": str(tmp_path / "none")}))
    words = (
        r"^\[chat\] and \[warm\] are both set, expected only one of them: remove one, because the demonstrations of a "
        "warm start are not rendered with the chat template$"
    )
    with pytest.raises(SentinelError, match=words):
        select_components(recipe(chat=settings.model_dump(), warm={"steps": 1}))


def test_template_without_messages_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("answer:")
    with pytest.raises(SentinelError, match=r"^chat template renders 'answer:' for the message 'hello', expected"):
        _wrapped(Calls(), ChatSettings(template=str(tmp_path / "chat.jinja")))
