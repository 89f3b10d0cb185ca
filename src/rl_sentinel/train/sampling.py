"""What a rollout engine answers, and what it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampled:
    """One response: its tokens (the end among them), their log-probs in nats, whether it ended, and who sampled.

    ``version`` counts the updates that the weights which sampled it had seen.
    """

    token: tuple[int, ...]
    logprob: tuple[float, ...]
    ended: bool
    version: int


class Engine(Protocol):
    """Whoever samples: in this process, or a server."""

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Sample with these weights from now on; ``version`` counts the updates that they have seen."""

    def sample(
        self, prompts: Sequence[tuple[int, ...]], chance: Float[Tensor, "B T"], *, greedy: bool = False
    ) -> list[Sampled]:
        """One response to each prompt.

        Args:
            prompts: token ids; any lengths.
            chance: a number from 0 to 1 for each token that may be sampled, so that what is drawn does not depend
                on how rows are batched, but for rounding.
            greedy: whether the likeliest token is taken each time, and chance left aside.

        Returns:
            A response per prompt, in order.
        """
