"""Replacements that SkyRL's generator calls: tokenizer, scripted inference engine, text environment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Ids of the chat template: end of sequence, start of a message, the newline after it; a custom template has a start
#: of its own.
EOS, START, NEWLINE, CUSTOM_START = 1, 2, 10, 6
ROLES = {"system": 3, "user": 4, "assistant": 5}

#: A string that ends a turn, and an observation after the last turn.
STOP, CLOSING = 900, 901

#: Every other token of a script has an id of its own: from this one on in row 0, ``PER_ROW`` ids for each row.
FIRST, PER_ROW = 1_000, 1_000


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model samples in one turn and what the environment answers, as ids."""

    sampled: Sequence[int]
    logprobs: Sequence[float]
    stop_reason: str
    observation: Sequence[int]


@dataclass(frozen=True, slots=True)
class Script:
    """One conversation: its turns, and the reward after the last one."""

    turns: Sequence[Turn]
    reward: float


def id_of(row: int, place: int) -> int:
    """The id of a token of its own."""
    return FIRST + row * PER_ROW + place


def text_of(ids: Sequence[int]) -> str:
    """A text with one character per token."""
    return "".join(map(chr, ids))


class Tokenizer:
    """One token per character, a chat template after ChatML, and a custom one that begins messages otherwise."""

    eos_token_id = EOS
    eos_token = chr(EOS)
    pad_token_id = 0

    def encode(self, text: str, **_options: object) -> list[int]:
        """The ids of a text."""
        return [ord(character) for character in text]

    def __call__(self, text: str, **_options: object) -> dict[str, list[int]]:
        """The ids of a text, as transformers returns them."""
        return {"input_ids": self.encode(text)}

    def decode(self, ids: Sequence[int], **_options: object) -> str:
        """The text of ids."""
        return text_of(ids)

    def apply_chat_template(self, messages: list[Any], **options: Any) -> Any:  # noqa: ANN401 - ids, a dict, or lists
        """The ids of a conversation, or of each of several; as a dict with the mask of the assistant where asked."""
        if messages and isinstance(messages[0], list):
            return [self.apply_chat_template(one, **options) for one in messages]
        ids, mask = list[int](), list[int]()
        start = CUSTOM_START if options.get("chat_template") else START
        for message in messages:
            own = int(message["role"] == "assistant")
            content = [*self.encode(message["content"]), EOS]
            ids += [start, ROLES[message["role"]], *content, NEWLINE]
            mask += [0, 0, *[own] * len(content), 0]
        if options.get("add_generation_prompt"):
            ids, mask = [*ids, start, ROLES["assistant"]], [*mask, 0, 0]
        if not options.get("tokenize", True):
            return text_of(ids)
        return {"input_ids": ids, "assistant_masks": mask} if options.get("return_dict") else ids


class Engine:
    """An inference engine that samples the turns of the scripts, and keeps the prompts that it was passed as ids."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        """Start every script at its first turn."""
        self.scripts = scripts
        self.prompts: list[list[list[int] | None]] = [[] for _ in scripts]

    async def generate(self, request: Any, **_options: object) -> dict[str, Any]:  # noqa: ANN401 - the target's dict
        """The next turn of each conversation: text, ids, log-probs if they were ordered, and why it ended.

        The text has no EOS where the request skips special tokens.
        """
        prompts = request.get("prompt_token_ids")
        if prompts:
            turns = [self._next(prompt, prompt) for prompt in prompts]
        else:
            texts = [Tokenizer().apply_chat_template(messages) for messages in request["prompts"]]
            turns = [self._next(text, None) for text in texts]
        sampling = request.get("sampling_params") or {}
        ordered, hidden = sampling.get("logprobs") is not None, sampling.get("skip_special_tokens", True)
        return {
            "responses": [text_of([one for one in turn.sampled if one != EOS or not hidden]) for turn in turns],
            "response_ids": [list(turn.sampled) for turn in turns],
            "stop_reasons": [turn.stop_reason for turn in turns],
            "response_logprobs": [list(turn.logprobs) for turn in turns] if ordered else None,
        }

    async def finish_session(self, *_about: object) -> None:
        """Release nothing."""

    def _next(self, tokens: Sequence[int], prompt: Sequence[int] | None) -> Turn:
        row = next((one - FIRST) // PER_ROW for one in tokens if one >= FIRST)
        self.prompts[row].append(None if prompt is None else list(prompt))
        return self.scripts[row].turns[len(self.prompts[row]) - 1]


class Environment:
    """A text environment that answers with the observations of a script, and rewards its last turn."""

    def __init__(self, script: Script) -> None:
        """Start before the first turn."""
        self.script, self.at = script, 0

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The prompt as it is."""
        return prompt, {}

    def step(self, _action: str) -> dict[str, Any]:
        """The observation after a turn, the reward of the last one, and whether it was the last."""
        turn, self.at = self.script.turns[self.at], self.at + 1
        done = self.at == len(self.script.turns)
        said = [{"role": "user", "content": text_of(turn.observation)}] if turn.observation else []
        reward = self.script.reward if done else 0.0
        return {"observations": said, "reward": reward, "done": done, "metadata": {}}

    def get_metrics(self) -> dict[str, Any]:
        """No metrics."""
        return {}

    def close(self) -> None:
        """Nothing to close."""


class Environments:
    """The section of the configuration about environments: none has settings, and they run in the event loop."""

    max_env_workers = 0

    def get(self, _name: str, default: object) -> object:
        """No settings for an environment."""
        return default


def make_environment(_env_class: str, *, extras: dict[str, Any], **_about: object) -> Environment:
    """The environment of a sample: the extras of its row have the script."""
    return Environment(extras["script"])


def no_metrics(*_about: object) -> dict[str, float]:
    """The metrics of environments that report none."""
    return {}
