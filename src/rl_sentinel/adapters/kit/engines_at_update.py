"""Fake inference engines that have a request while they receive new weights."""

from typing import Any

import torch

#: The number of a token that was never sampled.
_MISSING = float("inf")


class Engines:
    """Fake engines that sample one response when they first can: during the update, unless they are paused or asleep.

    A response that is sampled during the update has versions that are 1 lower than the version of the new weights.
    """

    def __init__(self, row: dict[str, Any], *, asleep: bool = False) -> None:
        """Start with the weights of the step before; ``row`` is the response, with the version of the new weights."""
        self.row, self.asleep, self.paused, self.is_new = row, asleep, False, False
        self.answer: dict[str, Any] | None = None

    def receive(self) -> None:
        """Receive the weights, or a part of them."""
        self._sample(late=1)
        self.is_new = True

    def finished(self) -> dict[str, Any]:
        """The log-probs and versions of the response after the update.

        All are infinite if the engines have not sampled, because they are still paused or asleep.
        """
        self._sample(late=int(not self.is_new))
        absent = [_MISSING] * len(self.row["logprobs"])
        return self.answer or {"logprobs": absent, "versions": absent}

    def _sample(self, late: int) -> None:
        if self.answer is None and not (self.paused or self.asleep):
            versions = [version - late for version in self.row["versions"]]
            self.answer = {"logprobs": self.row["logprobs"], "versions": versions}


def columns(answers: list[dict[str, Any]]) -> dict[str, list[torch.Tensor]]:
    """The log-probs and versions of all rows, one list per column."""
    return {
        key: [torch.tensor(answer[key], dtype=torch.float64) for answer in answers] for key in ("logprobs", "versions")
    }
