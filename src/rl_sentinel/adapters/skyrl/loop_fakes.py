"""Fakes for SkyRL's training loops: data loader, engines and workers, timers, and the log."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any


async def nothing_later(*_passed: object, **_options: object) -> None:
    """Do nothing, as a coroutine function."""


class PromptLoader:
    """A stateful data loader of one prompt per batch, which continues at the saved position after a restart."""

    def __init__(self, rows: int) -> None:
        """Start at the first prompt."""
        self.rows, self.position = rows, 0
        self.latest = -1  # the prompt that was read last

    def __len__(self) -> int:
        """The number of batches."""
        return self.rows

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        """The remaining batches; in the next pass, all batches."""
        first, self.position = self.position, 0
        return self._batches(range(first, self.rows))

    def _batches(self, rows: range) -> Iterator[list[dict[str, Any]]]:
        chat = [{"role": "user", "content": "prompt"}]
        for row in rows:
            self.latest = row
            yield [{"prompt": chat, "env_class": "env", "env_extras": {}, "uid": str(row)}]

    def state_dict(self) -> dict[str, int]:
        """The position."""
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the position."""
        self.position = state["position"]


class Data(dict[str, Any]):
    """A training batch of one prompt, without tensors."""

    def __init__(self, uids: list[str]) -> None:
        """Store the uid of the prompt."""
        super().__init__(sequences=[], **{key: [] for key in ("rewards", "custom_rewards", "rm_rewards")})
        self.uid, self.metadata = uids[0], {"uids": uids}


class Client:
    """Fake engines and workers; all methods except ``generate`` are coroutine functions that do nothing."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a coroutine function
        """A method of any name, which does nothing."""
        if name.startswith("__"):
            raise AttributeError(name)

        return nothing_later

    async def generate(self, _prompts: object) -> dict[str, Any]:
        """One response."""
        return {"response_ids": [[1]], "rewards": [0.0]}


class Weights:
    """A fake for objects that wake and move engines: a context manager that does nothing."""

    def __init__(self, *_passed: object, **_options: object) -> None:
        """Ignore the arguments: there are no engines."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_error: object) -> None:
        """Do nothing."""

    def update_condition(self, _condition: object) -> None:
        """Do nothing."""


class Gauges:
    """Fake timers for the phases of a loop: methods and context managers do nothing."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a function
        """A method of any name, which does nothing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_passed, **_options: nullcontext()


class Log:
    """A record of a run: its prompts in order, the number of evaluations, and that of metrics logged at their step."""

    backend = "wandb"

    def __init__(self, *names: str) -> None:
        """Start empty; ``names`` are the metrics whose value is their step."""
        self.prompts: list[int] = []
        self.evaluations = self.in_place = 0
        self.names = names

    def log(self, numbers: Mapping[str, Any], *, step: int, **_options: object) -> None:
        """Count the metrics whose value is this step."""
        self.in_place += sum(numbers.get(name) == step for name in self.names)

    def finish(self) -> None:
        """Do nothing."""

    @property
    def elsewhere(self) -> int:
        """The number of metrics that are logged at a wrong step, or never."""
        return len(self.prompts) + self.evaluations - self.in_place
