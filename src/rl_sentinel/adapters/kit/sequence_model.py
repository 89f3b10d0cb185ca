"""A model double for losses that call a model: its logits give the log-probs of the case."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_sentinel.adapters.kit.codecs import OneColumn
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Codec, Inputs, Sizes

#: Size of the vocabulary; response ids are 1 or higher, and neighbours differ, so that a shift by one changes results.
VOCABULARY = 4

#: Number of tokens of each prompt, all 0.
PROMPT = 1


def token_ids(batch: Batch) -> Tensor:
    """``[B, T]`` token ids of the responses."""
    rows, positions = torch.arange(batch.rows).unsqueeze(1), torch.arange(batch.width).unsqueeze(0)
    return 1 + (rows + positions) % (VOCABULARY - 1)


def logits_of(logprob: Tensor, ids: Tensor) -> Tensor:
    """``[B, T, V]`` log-probs: ``logprob`` for the token of ``ids``, the rest spread evenly over the other tokens.

    Gradients flow to ``logprob`` through the log-prob of the token itself.
    """
    own_logprob = torch.where(logprob > -1e-3, logprob * 0 - 1e-3, logprob)
    others = torch.log(-torch.expm1(own_logprob)) - torch.log(torch.tensor(VOCABULARY - 1.0))
    is_own = torch.nn.functional.one_hot(ids, VOCABULARY).bool()
    return torch.where(is_own, own_logprob.unsqueeze(2), others.unsqueeze(2))


class Policy:
    """A model with the interface of transformers: ``model(input_ids=..., attention_mask=...).logits``."""

    training = True

    def __init__(self, logits: Tensor) -> None:
        """Create a model that returns these logits, ``[B, prompt + T, V]``."""
        self.logits = logits
        self.device = logits.device
        self.config = SimpleNamespace(vocab_size=VOCABULARY)

    def __call__(self, *_args: Any, **_kwargs: Any) -> SimpleNamespace:  # noqa: ANN401 - as a model of transformers
        """The output of a forward pass: position ``i`` predicts token ``i + 1``."""
        return SimpleNamespace(logits=self.logits, loss=None)

    forward = __call__


@dataclass(frozen=True, slots=True)
class PolicyModel(OneColumn):
    """A :class:`Policy` whose log-probs of the response tokens are a column of the batch."""

    name: str = "logprob"

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The log-probs."""
        return {self.name: "a model has no log-probs to read: it must be called"}

    @property
    def modelled(self) -> frozenset[str]:
        """The log-probs."""
        return frozenset({self.name})

    def put(self, inputs: Inputs) -> Policy:
        """The model for the rows of the batch; its logits are those before a division by the temperature."""
        batch: Batch = inputs.batch
        scale = float(inputs.settings.get("temperature") or 1)
        response = logits_of(getattr(batch, self.name), token_ids(batch)) * scale
        last = response.new_zeros(batch.rows, 1 + inputs.layout.extra, VOCABULARY)
        before = response.new_zeros(batch.rows, PROMPT - 1, VOCABULARY)
        return Policy(torch.cat([before, response, last], 1))


@dataclass(frozen=True, slots=True)
class InputIds(Codec):
    """``[B, prompt + T]``: the tokens of prompt and response, 0 in prompt and padding."""

    response_only: bool = False

    @property
    def shapes(self) -> frozenset[str]:
        """The length."""
        return frozenset({"length"})

    def put(self, inputs: Inputs) -> Tensor:
        """The token ids."""
        ids = torch.where(inputs.batch.valid, token_ids(inputs.batch), 0)
        return pad(ids, (0 if self.response_only else PROMPT, inputs.layout.extra))

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows."""
        return Sizes(rows=len(value))


@dataclass(frozen=True, slots=True)
class SequenceMask(Codec):
    """``[B, prompt + T]`` int64: 1 at all tokens (``all``), or at the trained tokens (``trained``)."""

    of: Literal["all", "trained"] = "all"

    @property
    def columns(self) -> frozenset[str]:
        """The mask, if it marks the trained tokens."""
        return frozenset({"mask"}) if self.of == "trained" else frozenset()

    @property
    def shapes(self) -> frozenset[str]:
        """The length."""
        return frozenset({"length"})

    def put(self, inputs: Inputs) -> Tensor:
        """The mask."""
        batch = inputs.batch
        inside = batch.mask if self.of == "trained" else batch.valid
        return pad(inside.long(), (PROMPT, inputs.layout.extra), value=0).index_fill_(
            1, torch.arange(PROMPT), int(self.of == "all")
        )

    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        """The mask of the response."""
        width = sizes.width or value.shape[1] - PROMPT
        return {"mask": value[:, PROMPT : PROMPT + width].bool()} if self.of == "trained" else {}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The mask."""
        return {"mask": batch.mask} if self.of == "trained" else {}


@dataclass(frozen=True, slots=True)
class TargetIds(SequenceMask):
    """``[B, prompt + T]``: ids of the trained tokens, -100 elsewhere, like ``labels`` of transformers."""

    of: Literal["all", "trained"] = "trained"

    def put(self, inputs: Inputs) -> Tensor:
        """The token ids."""
        ids = torch.where(inputs.batch.mask, token_ids(inputs.batch), -100)
        return pad(ids, (PROMPT, inputs.layout.extra), value=-100)

    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        """The mask of the response."""
        return SequenceMask.take(self, (value >= 0).long(), sizes)


@dataclass(frozen=True, slots=True)
class PromptTokens(Codec):
    """``[B, prompt]``: the token ids of the prompts, all 0, or their ``mask``, all 1."""

    mask: bool = False

    def put(self, inputs: Inputs) -> Tensor:
        """The ids, or the mask."""
        return torch.full((inputs.batch.rows, PROMPT), int(self.mask), dtype=torch.int64)
