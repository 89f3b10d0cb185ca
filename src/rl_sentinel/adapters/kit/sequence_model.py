"""A fake model for losses that call a model: its logits have the log-probs of the case."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import OneColumn
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.codec import Codec, Inputs, Sizes
from rl_sentinel.core.layout import Axis

#: Number of ids of responses and padding. Ids of responses are 1 or higher, and neighbors differ, so that a shift by
#: one changes results. Each row has one more id, that of its prompt, by which the model recognizes the sequence.
VOCABULARY = 4

PROMPT, PADDED_PROMPT = 1, 2  #: tokens of each prompt, without and with padding in front

#: The largest log-prob of a token: logits are finite, so the other tokens keep some probability.
_LARGEST = -1e-3

#: Added to all logits of a token, because the logits of a real model are not normalized.
_OFFSET = 0.75

#: Added to the log-probs of a token in a wrong context, such as a wrong token or padding in front of the prompt.
_DISTRACTED = -0.5

#: Logit of the ids of prompts: their probability is in effect 0.
_NEVER = -1e4


def token_ids(batch: Batch) -> Tensor:
    """``[B, T]`` token ids of the responses."""
    rows, positions = torch.arange(batch.rows).unsqueeze(1), torch.arange(batch.width).unsqueeze(0)
    return 1 + (rows + positions) % (VOCABULARY - 1)


def prompt_mask(rows: int, *, left_padded: bool) -> Tensor:
    """``[B, P]``: True at the tokens of the prompts; with ``left_padded``, a padding token precedes each prompt."""
    tokens = torch.ones(rows, PROMPT, dtype=torch.bool, device="cpu")
    return pad(tokens, (PADDED_PROMPT - PROMPT, 0)) if left_padded else tokens


def prompt_ids(rows: int, *, left_padded: bool) -> Tensor:
    """``[B, P]``: the id of each row's prompt, 0 at padding."""
    ids = VOCABULARY + torch.arange(rows, device="cpu").unsqueeze(1)
    return prompt_mask(rows, left_padded=left_padded) * ids


def logits_of(logprob: Tensor, ids: Tensor, *, uneven: bool = False) -> Tensor:
    """``[B, T, V]`` log-probs: ``logprob`` for the token of ``ids``, and the rest of the probability for the others.

    The other tokens have equal shares of the rest. With ``uneven``, their shares increase with the distance of their
    id, modulo the vocabulary, from this token. A log-prob above ``_LARGEST`` is lowered to it.
    """
    own_logprob = torch.where(logprob > _LARGEST, logprob * 0 + _LARGEST, logprob)
    behind = (torch.arange(VOCABULARY, device=ids.device) - ids.unsqueeze(2)) % VOCABULARY
    weights = (behind.double() ** 2 if uneven else (behind > 0).double()).to(logprob.dtype)
    shares = torch.log(weights / weights.sum(2, keepdim=True))
    others = torch.log(-torch.expm1(own_logprob)).unsqueeze(2) + shares
    return torch.where(behind == 0, own_logprob.unsqueeze(2), others)


def uncertain(batch: Batch) -> Batch:
    """Lower the log-probs to values that a model can have; a batch with such values is unchanged."""
    if not bool((batch.logprob > _LARGEST).any()):
        return batch
    return with_columns(batch, logprob=batch.logprob.clamp(max=_LARGEST))


class Policy:
    """A model with the interface of transformers: ``model(input_ids=..., attention_mask=...).logits``."""

    training = True

    def __init__(self, logits: Tensor, distracted: Tensor, tokens: Tensor, prompts: Tensor) -> None:
        """Create a model of these sequences.

        Args:
            logits: ``[B, P + T, V]``, the logits if the model reads the right context.
            distracted: ``[B, P + T, V]``, the logits if it reads another context.
            tokens: ``[B, P + T]``, the ids of the sequences.
            prompts: ``[B, P]``, True at the tokens of the prompts.
        """
        self.logits, self.distracted, self.tokens, self.prompts = logits, distracted, tokens, prompts
        self.device = logits.device
        self.config = SimpleNamespace(vocab_size=logits.shape[2])

    def __call__(self, input_ids: Any = None, attention_mask: Any = None, **more: Any) -> SimpleNamespace:  # noqa: ANN401 - as a model of transformers
        """The output of a forward pass: position ``i`` predicts token ``i + 1``; RuntimeError if rows are packed."""
        given = input_ids if isinstance(input_ids, Tensor) and input_ids.dim() == 2 else self.tokens
        if len(given) < len(self.tokens) and given.shape[1] > self.tokens.shape[1]:
            raise RuntimeError(f"input_ids is {list(given.shape)}, expected {list(self.tokens.shape)}: pack no rows")
        width, rows = given.shape[1], self._rows_of(given)
        beyond = max(width - self.tokens.shape[1], 0)
        usual, others = (pad(x, (0, 0, 0, beyond))[rows, :width] for x in (self.logits, self.distracted))
        attended = self._attended(rows, attention_mask)
        right = given == pad(self.tokens, (0, beyond))[rows, :width]
        right |= pad(~attended, (0, width))[:, :width]
        known = right.cumprod(1).bool() & ~(attended & ~self.prompts[rows]).any(1, keepdim=True)
        last = more.get("logits_to_keep") or more.get("num_logits_to_keep") or 0
        return SimpleNamespace(logits=torch.where(known.unsqueeze(2), usual, others)[:, -last:], loss=None)

    forward = __call__

    def _rows_of(self, given: Tensor) -> Tensor:
        """``[b]``: the row of each sequence, found by the id of its prompt; without such an id, by position."""
        named = given[:, : self.prompts.shape[1]][:, -1].long() - VOCABULARY
        known = (named >= 0) & (named < len(self.tokens))
        return torch.where(known, named, torch.arange(len(given)) % len(self.tokens))

    def _attended(self, rows: Tensor, attention_mask: Any) -> Tensor:  # noqa: ANN401 - as a model of transformers
        """``[b, P]``: True at the prompt positions to which the call attends; without a mask, at all positions."""
        prompts = self.prompts[rows]
        if not isinstance(attention_mask, Tensor):
            return torch.ones_like(prompts)
        # A mask per head or pair of positions is assumed to be right.
        return attention_mask[:, : prompts.shape[1]].bool() if attention_mask.dim() == 2 else prompts


@dataclass(frozen=True, slots=True)
class PolicyModel(OneColumn):
    """A :class:`Policy` whose log-probs of the response tokens are a column of the batch.

    With ``uneven``, the other tokens have different probabilities. With ``left_padded``, a padding token precedes each
    prompt.
    """

    name: str = "logprob"
    uneven: bool = False
    left_padded: bool = False

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The column of log-probs, with the reason why it cannot be read back."""
        return {self.name: "log-probs cannot be read from a model without a call"}

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``extra``: the extra padding."""
        return frozenset({"extra"})

    @property
    def modeled(self) -> frozenset[str]:
        """The column of log-probs that the model computes."""
        return frozenset({self.name})

    def put(self, inputs: Inputs) -> Policy | Tensor:
        """The model for the rows of the batch."""
        return self.model(inputs)

    def model(self, inputs: Inputs) -> Policy:
        """The model; its logits are not yet divided by the temperature."""
        logprob = getattr(inputs.batch, self.name)
        prompts = prompt_mask(inputs.batch.rows, left_padded=self.left_padded)
        # Its gradients differ too, from token to token: a loss of one policy does not depend on the log-probs.
        other = logprob * (2.0 + torch.arange(inputs.batch.width)) + _DISTRACTED
        usual, distracted = (self._logits(x, prompts.shape[1], inputs) for x in (logprob, other))
        return Policy(usual, distracted, InputIds(left_padded=self.left_padded).put(inputs), prompts)

    def _logits(self, logprob: Tensor, prompt: int, inputs: Inputs) -> Tensor:
        """``[B, P + T, V]``: the logits of the responses, and zeros elsewhere."""
        scale = float(inputs.settings.get("temperature") or 1)
        normalized = logits_of(logprob, token_ids(inputs.batch), uneven=self.uneven)
        response = pad((normalized + _OFFSET) * scale, (0, inputs.batch.rows), value=_NEVER)
        return pad(response, (0, 0, prompt - 1, 1 + inputs.layout.extra))


@dataclass(frozen=True, slots=True)
class PolicyLogits(PolicyModel):
    """``[B, P + T, V]``: the logits of a :class:`Policy`; or ``[B, T, V]``: the logits of the response tokens."""

    response_only: bool = False

    @property
    def shapes(self) -> frozenset[str]:
        """The column of response lengths, which determines the shape."""
        return frozenset({"length"})

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The column of log-probs, with the reason why it cannot be read back."""
        return {self.name: "log-probs cannot be read from logits without tokens"}

    def put(self, inputs: Inputs) -> Tensor:
        """The logits, before a division by the temperature; contiguous, so that ``view`` can flatten them."""
        logits = self.model(inputs).logits
        if not self.response_only:
            return logits
        width = inputs.batch.width + inputs.layout.extra
        return logits[:, PROMPT - 1 : PROMPT - 1 + width].contiguous()

    @override
    def sizes(self, value: Tensor) -> Sizes:
        return Sizes(rows=len(value))


@dataclass(frozen=True, slots=True)
class InputIds(Codec):
    """``[B, P + T]``: the tokens of prompt and response, 0 in padding; or only the response tokens."""

    response_only: bool = False
    left_padded: bool = False

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``extra``: the extra padding."""
        return frozenset({"extra"})

    @property
    def shapes(self) -> frozenset[str]:
        """The column of response lengths, which determines the shape."""
        return frozenset({"length"})

    @override
    def put(self, inputs: Inputs) -> Tensor:
        ids = torch.where(inputs.batch.valid, token_ids(inputs.batch), 0)
        prompts = prompt_ids(len(ids), left_padded=self.left_padded)
        return pad(ids if self.response_only else torch.cat([prompts, ids], 1), (0, inputs.layout.extra))

    @override
    def sizes(self, value: Tensor) -> Sizes:
        return Sizes(rows=len(value))


@dataclass(frozen=True, slots=True)
class SequenceMask(Codec):
    """``[B, P + T]`` int64, or ``[B, T]``: 1 at all tokens (``all``), or at the trained tokens (``trained``)."""

    of: Literal["all", "trained"] = "all"
    left_padded: bool = False
    response_only: bool = False

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``extra``: the extra padding."""
        return frozenset({"extra"})

    @property
    def columns(self) -> frozenset[str]:
        """The column ``mask``, if the argument marks the trained tokens; otherwise no column."""
        return frozenset({"mask"}) if self.of == "trained" else frozenset()

    @property
    def shapes(self) -> frozenset[str]:
        """The column of response lengths, which determines the shape."""
        return frozenset({"length"})

    @override
    def put(self, inputs: Inputs) -> Tensor:
        batch = inputs.batch
        prompts = prompt_mask(batch.rows, left_padded=self.left_padded)
        parts = [prompts, batch.valid] if self.of == "all" else [torch.zeros_like(prompts), batch.mask]
        return pad(torch.cat(parts[int(self.response_only) :], 1).long(), (0, inputs.layout.extra))

    @override
    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        before = 0 if self.response_only else prompt_mask(0, left_padded=self.left_padded).shape[1]
        width = sizes.width or value.shape[1] - before
        return {"mask": value[:, before : before + width].bool()} if self.of == "trained" else {}

    @override
    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"mask": batch.mask} if self.of == "trained" else {}


@dataclass(frozen=True, slots=True)
class TargetIds(SequenceMask):
    """``[B, P + T]``, or ``[B, T]``: ids of trained tokens, and ``untrained`` elsewhere, such as -100."""

    of: Literal["all", "trained"] = "trained"
    untrained: int = -100

    @override
    def put(self, inputs: Inputs) -> Tensor:
        ids = token_ids(inputs.batch).masked_fill(~inputs.batch.mask, self.untrained)
        before = 0 if self.response_only else prompt_mask(0, left_padded=self.left_padded).shape[1]
        return pad(ids, (before, inputs.layout.extra), value=self.untrained)

    @override
    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        return SequenceMask.take(self, (value >= 0).long(), sizes)


@dataclass(frozen=True, slots=True)
class PromptTokens(Codec):
    """``[B, P]``: the token ids of the prompts, 0 at padding, or their ``mask``."""

    mask: bool = False
    left_padded: bool = False

    @override
    def put(self, inputs: Inputs) -> Tensor:
        rows, left = inputs.batch.rows, self.left_padded
        return prompt_mask(rows, left_padded=left).long() if self.mask else prompt_ids(rows, left_padded=left)
