"""Codecs of rewards: token rewards, the outcome at the last response token, several rewards per response."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import FormCodec
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes


def _last(length: Tensor, width: int) -> Tensor:
    """``[B, T]``: True at the last response token of each row."""
    return torch.arange(1, width + 1, device=length.device) == length.unsqueeze(1)


def _outcomes(batch: Batch) -> Tensor:
    """``[B, T]``: the outcome of each row at its last response token, 0 elsewhere."""
    return torch.where(_last(batch.length, batch.width), batch.reward.unsqueeze(1), 0.0)


def _split(whole: Tensor, length: Tensor, outcome: Tensor | None = None) -> Mapping[str, Tensor]:
    """Split the sum into outcome and token rewards; if the outcome is unknown, the reward of the last token is used."""
    last = _last(length, whole.shape[1])
    if outcome is not None:
        return {"reward": outcome, "token_reward": torch.where(last, whole - outcome.unsqueeze(1), whole)}
    return {"reward": torch.where(last, whole, 0.0).sum(1), "token_reward": torch.where(last, 0.0, whole)}


@dataclass(frozen=True, slots=True)
class TokenRewards(FormCodec):
    """Rewards per token: ``token_reward`` with the outcome added at the last response token.

    The sum cannot be separated at the last token: when read back, ``reward`` is the whole value there and
    ``token_reward`` is 0, unless another argument carries the outcome alone.
    """

    form: Form = field(default_factory=Padded)
    dtype: torch.dtype | None = None

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the outcome and of the token rewards."""
        return frozenset({"reward", "token_reward"})

    @property
    def shapes(self) -> frozenset[str]:
        """The length, which determines the last token."""
        return frozenset({"length"})

    @override
    def put(self, inputs: Inputs) -> Any:
        rewards = self._rewards(inputs.batch)
        return self.form.lay_out(rewards if self.dtype is None else rewards.to(self.dtype), inputs)

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - as the form
        """The outcome and the token rewards, separated; empty if the lengths are unknown."""
        if sizes.length is None:
            return {}
        return _split(self.form.read(value, sizes), sizes.length, sizes.outcome)

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The columns after a round trip: the outcome is the whole reward of the last token."""
        return _split(self.form.canonical(self._rewards(batch), batch), batch.length)

    def _rewards(self, batch: Batch) -> Tensor:
        return batch.token_reward + _outcomes(batch)


@dataclass(frozen=True, slots=True)
class PerRowOutcome(TokenRewards):
    """A column ``[B, T]`` with the outcome at the last response token, and without token rewards."""

    @property
    @override
    def columns(self) -> frozenset[str]:
        return frozenset({"reward"})

    def sizes(self, value: Tensor) -> Sizes:
        """The sizes of the form, and the outcome: the sum of the row, which contains no other reward."""
        return replace(self.form.sizes(value), outcome=value.sum(1))

    @override
    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        return {"reward": value.sum(1)}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The outcome of each row; 0 for a response without tokens."""
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
        """The column with all parts of the reward."""
        return frozenset({"reward_parts"})

    @override
    def put(self, inputs: Inputs) -> Any:
        return inputs.batch.reward_parts.float()[:, self.number].numpy()

    @override
    def sizes(self, value: Any) -> Sizes:
        return Sizes(rows=len(value))

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401, ARG002 - a numpy array
        """This part of the reward; the other parts are NaN, because other arguments have them."""
        parts = torch.full((len(value), self.count), torch.nan)
        parts[:, self.number] = torch.as_tensor(value)
        return {"reward_parts": parts}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """This part of the reward; the other parts are NaN."""
        return self.take(batch.reward_parts[:, self.number], Sizes())
