"""Fakes for SkyRL's generator: character tokenizer, scripted inference engine, scripted text environment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Token ids of the chat template: end of sequence, start of a message, newline after a message. The custom template
#: starts a message with another id.
EOS, START, NEWLINE, CUSTOM_START = 1, 2, 10, 6
ROLES = {"system": 3, "user": 4, "assistant": 5}

#: Token ids of a stop string, of an observation after the last turn, and of an environment's message before the prompt.
STOP, CLOSING, OPENING = 900, 901, 902

#: Each other token of a script has a unique id: row r uses the ``PER_ROW`` ids from ``FIRST + r * PER_ROW`` on.
FIRST, PER_ROW = 1_000, 1_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as token ids: the sampled tokens, and the environment's observation after them."""

    sampled: Sequence[int]
    logprobs: Sequence[float]
    stop_reason: str
    observation: Sequence[int]


@dataclass(frozen=True, slots=True)
class Script:
    """One conversation: its turns, the reward after the last one, and whether it opens with an environment message."""

    turns: Sequence[Turn]
    reward: float
    opens: bool = False


def id_of(row: int, position: int) -> int:
    """The unique id of the token at a position in the response of a row."""
    return FIRST + row * PER_ROW + position


def text_of(ids: Sequence[int]) -> str:
    """The text with one character per token."""
    return "".join(map(chr, ids))


class Tokenizer:
    """A tokenizer of single characters, with a ChatML-like template and a template with another start token."""

    eos_token_id = EOS
    eos_token = chr(EOS)
    pad_token_id = 0

    def encode(self, text: str, **_options: object) -> list[int]:
        """The token ids of a text."""
        return [ord(character) for character in text]

    def __call__(self, text: str, **_options: object) -> dict[str, list[int]]:
        """The token ids of a text, in the dict that transformers returns."""
        return {"input_ids": self.encode(text)}

    def decode(self, ids: Sequence[int], **_options: object) -> str:
        """The text of token ids."""
        return text_of(ids)

    def apply_chat_template(self, messages: list[Any], **options: Any) -> Any:  # noqa: ANN401 - ids, a dict, or lists
        """The token ids of one conversation or of several; with ``return_dict``, also the assistant mask.

        With ``tokenize=False``, the text.
        """
        if messages and isinstance(messages[0], list):
            return [self.apply_chat_template(conversation, **options) for conversation in messages]
        ids, mask = list[int](), list[int]()
        start = CUSTOM_START if options.get("chat_template") else START
        for message in messages:
            is_reply = int(message["role"] == "assistant")
            content = [*self.encode(message["content"]), EOS]
            ids += [start, ROLES[message["role"]], *content, NEWLINE]
            mask += [0, 0, *[is_reply] * len(content), 0]
        if options.get("add_generation_prompt"):
            ids, mask = [*ids, start, ROLES["assistant"]], [*mask, 0, 0]
        if not options.get("tokenize", True):
            return text_of(ids)
        return {"input_ids": ids, "assistant_masks": mask} if options.get("return_dict") else ids


class Engine:
    """A fake inference engine that returns the turns of the scripts in order, and records the prompts."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        """Start every script at its first turn."""
        self.scripts = scripts
        self.prompts: list[list[list[int] | None]] = [[] for _ in scripts]

    async def generate(self, request: Any, **_options: object) -> dict[str, Any]:  # noqa: ANN401 - the target's dict
        """The next turn of each conversation: text, token ids, stop reason, and log-probs if the request has them.

        The text lacks EOS if the request skips special tokens.
        """
        prompts = request.get("prompt_token_ids")
        if prompts:
            turns = [self._next(prompt, prompt) for prompt in prompts]
        else:
            texts = [Tokenizer().apply_chat_template(messages) for messages in request["prompts"]]
            turns = [self._next(text, None) for text in texts]
        sampling = request.get("sampling_params") or {}
        has_logprobs, skips_special = sampling.get("logprobs") is not None, sampling.get("skip_special_tokens", True)
        return {
            "responses": [
                text_of([token for token in turn.sampled if token != EOS or not skips_special]) for turn in turns
            ],
            "response_ids": [list(turn.sampled) for turn in turns],
            "stop_reasons": [turn.stop_reason for turn in turns],
            "response_logprobs": [list(turn.logprobs) for turn in turns] if has_logprobs else None,
        }

    async def finish_session(self, *_args: object) -> None:
        """Do nothing."""

    def _next(self, tokens: Sequence[int], prompt: Sequence[int] | None) -> Turn:
        row = next((token - FIRST) // PER_ROW for token in tokens if token >= FIRST)
        self.prompts[row].append(None if prompt is None else list(prompt))
        return self.scripts[row].turns[len(self.prompts[row]) - 1]


class Environment:
    """A text environment that returns the observations of a script, and its reward after the last turn."""

    def __init__(self, script: Script) -> None:
        """Start before the first turn."""
        self.script, self.at, self.reward = script, 0, 0.0

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The prompt, after a message of the environment if it opens the conversation, and an empty dict."""
        opening = [{"role": "system", "content": chr(OPENING)}] if self.script.opens else []
        return [*opening, *prompt], {}

    def step(self, action: str) -> dict[str, Any]:
        """The observation after the turn, its reward, and whether it was the last turn.

        Each text that is not the sampled one without EOS lowers the reward of the last turn by 1.
        """
        turn, self.at = self.script.turns[self.at], self.at + 1
        done = self.at == len(self.script.turns)
        messages = [{"role": "user", "content": text_of(turn.observation)}] if turn.observation else []
        self.reward -= float(action != text_of([token for token in turn.sampled if token != EOS]))
        reward = self.script.reward + self.reward if done else 0.0
        return {"observations": messages, "reward": reward, "done": done, "metadata": {}}

    def get_metrics(self) -> dict[str, Any]:
        """No metrics."""
        return {}

    def close(self) -> None:
        """Do nothing."""


class Environments:
    """The environments' section of the configuration, without settings and without worker threads."""

    max_env_workers = 0

    def get(self, _name: str, default: object) -> object:
        """The default: no environment has settings."""
        return default


def make_environment(_env_class: str, *, extras: dict[str, Any], **_options: object) -> Environment:
    """The environment of a sample; ``extras`` contains its script."""
    return Environment(extras["script"])


def no_metrics(*_args: object) -> dict[str, float]:
    """No metrics."""
    return {}
