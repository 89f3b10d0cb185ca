"""Codecs of rewards: per token, the outcome on the last token, several rewards of a response."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes
from rl_sentinel.core.layout import Axis


def _last_positions(batch: Batch) -> Tensor:
    """``[B, T]``: True at the last response token of each row."""
    after = torch.arange(1, batch.width + 1, device=batch.length.device)
    return after == batch.length.unsqueeze(1)


@dataclass(frozen=True, slots=True)
class TokenRewards(Codec):
    """Rewards per token: ``token_reward`` with the outcome added at the last response token.

    The two merge there: read back, ``reward`` is what stands at the last token, and ``token_reward`` is 0 there.
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

    @property
    def axes(self) -> frozenset[Axis]:
        """Those of the form."""
        return self.form.axes

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The sum, laid out."""
        batch = inputs.batch
        rewards = batch.token_reward + torch.where(_last_positions(batch), batch.reward.unsqueeze(1), 0.0)
        return self.form.lay(rewards if self.dtype is None else rewards.to(self.dtype), inputs)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - as the form
        """What the form tells."""
        return self.form.sizes(value)

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - as the form
        """Outcome and token rewards, apart."""
        if sizes.length is None:
            return {}
        whole = self.form.read(value, sizes)
        last = torch.arange(whole.shape[1], device=whole.device) == (sizes.length - 1).unsqueeze(1)
        zero = torch.zeros((), dtype=whole.dtype, device=whole.device)
        return {"reward": torch.where(last, whole, zero).sum(1), "token_reward": torch.where(last, zero, whole)}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """All of the last token's reward is outcome."""
        last = _last_positions(batch)
        whole = self.form.lost(batch.token_reward + torch.where(last, batch.reward.unsqueeze(1), 0.0), batch)
        zero = torch.zeros_like(whole)
        return {"reward": torch.where(last, whole, zero).sum(1), "token_reward": torch.where(last, zero, whole)}


@dataclass(frozen=True, slots=True)
class PerRowOutcome(Codec):
    """The outcome alone on the last response token, without what is paid per token."""

    form: Form = field(default_factory=Padded)

    @property
    def columns(self) -> frozenset[str]:
        """The outcome."""
        return frozenset({"reward"})

    @property
    def shapes(self) -> frozenset[str]:
        """The last token is where the length says."""
        return frozenset({"length"})

    @property
    def axes(self) -> frozenset[Axis]:
        """Those of the form."""
        return self.form.axes

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The outcome on the last token, 0 elsewhere."""
        batch = inputs.batch
        return self.form.lay(torch.where(_last_positions(batch), batch.reward.unsqueeze(1), 0.0), inputs)


@dataclass(frozen=True, slots=True)
class Part(Codec):
    """One of several rewards of a response, as a numpy array with one number per row."""

    number: int

    @property
    def columns(self) -> frozenset[str]:
        """The parts of the reward."""
        return frozenset({"reward_parts"})

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - a numpy array
        """The numbers of the part."""
        return inputs.batch.reward_parts.float()[:, self.number].numpy()
