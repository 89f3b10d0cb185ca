"""Codecs of rewards: per token, the outcome at the last token, several rewards per response."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import LaidOut
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes


def _last(length: Tensor, width: int) -> Tensor:
    """``[B, T]``: True at the last response token of each row."""
    return torch.arange(1, width + 1, device=length.device) == length.unsqueeze(1)


def _outcomes(batch: Batch) -> Tensor:
    """``[B, T]``: each row's outcome at its last response token, 0 elsewhere."""
    return torch.where(_last(batch.length, batch.width), batch.reward.unsqueeze(1), 0.0)


def _apart(whole: Tensor, length: Tensor, outcome: Tensor | None = None) -> Mapping[str, Tensor]:
    """Outcome and token rewards of their sum; all of the last token's is outcome, unless the outcome is known."""
    last = _last(length, whole.shape[1])
    if outcome is not None:
        return {"reward": outcome, "token_reward": torch.where(last, whole - outcome.unsqueeze(1), whole)}
    return {"reward": torch.where(last, whole, 0.0).sum(1), "token_reward": torch.where(last, 0.0, whole)}


@dataclass(frozen=True, slots=True)
class TokenRewards(LaidOut):
    """Rewards per token: ``token_reward`` with the outcome added at the last response token.

    The two merge there: read back, ``reward`` is what stands at the last token, and ``token_reward`` is 0 there, unless
    another argument carries the outcome alone.
    """

    form: Form = field(default_factory=Padded)
    dtype: torch.dtype | None = None

    @property
    def columns(self) -> frozenset[str]:
        """Outcome and token rewards."""
        return frozenset({"reward", "token_reward"})

    @property
    def shapes(self) -> frozenset[str]:
        """The last token is where the length says."""
        return frozenset({"length"})

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The sum, laid out."""
        rewards = self._rewards(inputs.batch)
        return self.form.lay(rewards if self.dtype is None else rewards.to(self.dtype), inputs)

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - as the form
        """Outcome and token rewards, apart."""
        if sizes.length is None:
            return {}
        return _apart(self.form.read(value, sizes), sizes.length, sizes.outcome)

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """All of the last token's reward is outcome."""
        return _apart(self.form.lost(self._rewards(batch), batch), batch.length)

    def _rewards(self, batch: Batch) -> Tensor:
        return batch.token_reward + _outcomes(batch)


@dataclass(frozen=True, slots=True)
class PerRowOutcome(TokenRewards):
    """The outcome alone on the last response token, without rewards per token; a form of ``[B, T]``."""

    @property
    def columns(self) -> frozenset[str]:
        """The outcome."""
        return frozenset({"reward"})

    def sizes(self, value: Tensor) -> Sizes:
        """The form's sizes, and the outcome: the sum of the row, which holds no other reward."""
        return replace(self.form.sizes(value), outcome=value.sum(1))

    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ARG002 - each row has one number
        """The outcome."""
        return {"reward": value.sum(1)}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The outcome of each row; 0 for a row without a token."""
        return {"reward": self._rewards(batch).sum(1)}

    def _rewards(self, batch: Batch) -> Tensor:
        return _outcomes(batch)


@dataclass(frozen=True, slots=True)
class Part(Codec):
    """One of ``count`` rewards of a response, as a numpy array with one number per row."""

    number: int
    count: int = 2

    @property
    def columns(self) -> frozenset[str]:
        """The parts of the reward."""
        return frozenset({"reward_parts"})

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - a numpy array
        """The numbers of the part."""
        return inputs.batch.reward_parts.float()[:, self.number].numpy()

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - a numpy array
        """Rows."""
        return Sizes(rows=len(value))

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401, ARG002 - a numpy array
        """This part; NaN for the others, which other arguments carry."""
        parts = torch.full((len(value), self.count), torch.nan)
        parts[:, self.number] = torch.as_tensor(value)
        return {"reward_parts": parts}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """This part, NaN for the others."""
        return self.take(batch.reward_parts[:, self.number], Sizes())
