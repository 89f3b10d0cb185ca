"""Conversations: render an environment's tasks and replies with a chat template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.train.config.settings import ChatSettings
from rl_sentinel.train.model.chat_template import Message, read_template
from rl_sentinel.train.model.policy import Tokenizer
from rl_sentinel.train.rollout.interfaces import Environment, Outcome, Request, Task

#: Stands for a response, to find the text that the template puts after it.
_MARK = "<<<response>>>"


@dataclass(frozen=True)
class ChatEnvironment:
    """An environment whose tasks and replies are rendered with a chat template.

    ``template`` is a Jinja text, or None for the tokenizer's own template.
    """

    inner: Environment
    tokenizer: Tokenizer
    template: str | None
    system: str

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the inner environment's own
        """A member of the inner environment."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def text(self, task: Task) -> str:
        """The conversation of a task, up to the start of the response."""
        return self.tokenizer.render(self._messages(task), self.template)

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The inner environment's reply; a text is rendered as the end of the response and the next user message.

        Raises:
            SentinelError: if the template fails, or leaves out earlier responses.
        """
        return self._rendered(Request(task, tuple(responses), ended), self.inner.reply(task, responses, ended=ended))

    def replies(self, requests: Sequence[Request]) -> list[str | Outcome]:
        """The replies of one turn, rendered; they are computed together if the inner environment supports it."""
        together = getattr(self.inner, "replies", None)
        if together is None:
            return [self.reply(r.task, r.responses, ended=r.ended) for r in requests]
        return [self._rendered(r, reply) for r, reply in zip(requests, together(requests), strict=True)]

    def _messages(self, task: Task) -> list[Message]:
        messages: list[Message] = list(task.messages) or [{"role": "user", "content": task.prompt}]
        if self.system and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self.system})
        return messages

    def _rendered(self, request: Request, reply: str | Outcome) -> str | Outcome:
        """Render a reply as the text between two responses, without an end token that the response already contains."""
        if isinstance(reply, Outcome):
            return reply
        turn: list[Message] = [{"role": "assistant", "content": _MARK}, {"role": "user", "content": reply}]
        text = self.tokenizer.render([*self._messages(request.task), *turn], self.template)
        _, mark, suffix = text.rpartition(_MARK)
        if not mark:
            raise SentinelError(
                "chat template leaves out or changes an earlier response, expected all turns: set chat.template to "
                "a Jinja file that renders all turns"
            )
        ends = self.tokenizer.end_texts if request.ended else ()
        return next((suffix.removeprefix(end) for end in ends if suffix.startswith(end)), suffix)


@overload
def apply_chat(environment: Environment, chat: ChatSettings | None, tokenizer: Tokenizer) -> Environment: ...


@overload
def apply_chat(environment: None, chat: ChatSettings | None, tokenizer: Tokenizer) -> None: ...


def apply_chat(environment: Environment | None, chat: ChatSettings | None, tokenizer: Tokenizer) -> Environment | None:
    """Wrap an environment so that it renders the recipe's chat template; without ``chat``, return it unchanged.

    Raises:
        SentinelError: if the template cannot be read or rendered or leaves out messages, or the tokenizer has none.
    """
    if chat is None or environment is None:
        return environment
    template = None if chat.template == "tokenizer" else read_template(chat.template)
    wrapped = ChatEnvironment(environment, tokenizer, template, chat.system)
    text = wrapped.text(Task("", "", messages=({"role": "user", "content": "hello"},)))
    if "hello" not in text:
        wanted = "expected its text: render the content of each message, as in {{ message.content }}"
        raise SentinelError(f"chat template renders {shortened(text)} for the message 'hello', {wanted}")
    return wrapped
