"""Codecs for preference pairs: features for a collator, and log-probs of the response tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import OneColumn
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.pairs import even_rows, trained_rows
from rl_sentinel.adapters.trl.token_model import CUT, FIRST, LARGEST, PROMPT, token_ids
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.codec import Codec, Inputs, Sizes

#: Number of tokens of the shortest prompt.
SHORTEST = 1

#: Number of tokens that truncation removes.
TRUNCATED = 2

Cut = Literal["", "keep_start", "keep_end"]


class NoPadding(Padded):
    """A tensor ``[B, T]`` without extra padding from the layout: a collator pads only to the longest sequence."""

    @property
    def axes(self) -> frozenset[Any]:
        """An empty set: the layout adds no padding."""
        return frozenset()


def trained_only(column: Tensor, batch: Batch) -> Tensor:
    """The column with 0 at untrained tokens, which are not in the data set."""
    return torch.where(batch.mask, column, torch.zeros_like(column))


@dataclass(frozen=True, slots=True)
class TokenLogprobs(OneColumn):
    """The model's log-probs ``[B, T]``; with ``leaf``, a leaf tensor that the audited code differentiates."""

    name: str
    leaf: bool = True

    def put(self, inputs: Inputs) -> Tensor:
        """The log-probs, with 0 at untrained tokens."""
        column: Tensor = trained_only(getattr(inputs.batch, self.name), inputs.batch)
        if not self.leaf:
            return column
        leaf = column.detach().clone().requires_grad_()
        inputs.leaves.append((column, leaf))
        return leaf

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows, and the width."""
        return Sizes(rows=value.shape[0], width=value.shape[1])

    @override
    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        return {self.name: value.detach()}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The log-probs, with 0 at untrained tokens."""
        return {self.name: trained_only(getattr(batch, self.name), batch)}


@dataclass(frozen=True, slots=True)
class PairFeatures(Codec):
    """One dict per pair with the token ids of prompt, chosen and rejected completion, as in the tokenized data set.

    A completion consists of the trained tokens of a row, because preference data sets have no mask. Without ``cut``,
    prompts have ``prompts`` lengths, from ``shortest`` tokens on. With ``whole``, prompt and completion form one
    sequence, with labels. With ``cut``, some sequences are longer than :func:`longest`, and the trainer truncates them.
    """

    whole: bool = False
    cut: Cut = ""
    names: tuple[str, ...] = field(default=("prompt_ids", "chosen_ids", "rejected_ids"))
    prompts: int = SHORTEST + 1
    shortest: int = SHORTEST

    @property
    def columns(self) -> frozenset[str]:
        """The mask, which selects the tokens of a completion."""
        return frozenset({"mask"})

    def put(self, inputs: Inputs) -> list[dict[str, Any]]:
        """One dict of token ids per pair of rows."""
        rows = self.rows(inputs)
        pairs = zip(rows[::2], rows[1::2], strict=True)
        return [self.feature(*pair, longest(inputs)) for pair in pairs]

    def rows(self, inputs: Inputs) -> list[list[int]]:
        """The ids of each response."""
        batch = inputs.batch
        ids = token_ids(batch.rows, batch.width).tolist()
        return [
            [token for token, m in zip(*row, strict=True) if m] for row in zip(ids, batch.mask.tolist(), strict=True)
        ]

    def prompt(self, response: list[int]) -> list[int]:
        """The prompt of a response. Its length depends on the response, so that a row keeps its prompt at any place."""
        return [PROMPT] * (self.shortest + (len(response) + 1) % self.prompts)

    def feature(self, chosen: list[int], rejected: list[int], most: int) -> dict[str, Any]:
        """The token ids of one pair."""
        room = most - max(len(chosen), len(rejected))
        prompt = [PROMPT] * room if self.cut else self.prompt(chosen)
        sides = {"chosen": chosen, "rejected": rejected}
        full = max(len(chosen), len(rejected))
        if self.cut == "keep_start":
            sides = {side: ids + [CUT] * TRUNCATED if len(ids) == full else ids for side, ids in sides.items()}
        if self.cut == "keep_end":
            prompt = [PROMPT] * (room + TRUNCATED)
        if self.cut == "keep_end" and room == 1:  # truncation removes the whole prompt of the longest responses
            sides = {side: [CUT] * TRUNCATED + ids if len(ids) == full else ids for side, ids in sides.items()}
        if self.whole:
            return self._joined(prompt, sides)
        names = dict(zip(("prompt", "chosen", "rejected"), self.names, strict=True))
        return {names["prompt"]: prompt, **{names[side]: ids for side, ids in sides.items()}}

    def _joined(self, prompt: list[int], sides: Mapping[str, list[int]]) -> dict[str, Any]:
        tokens: dict[str, Any] = {"prompt_input_ids": prompt, "prompt_attention_mask": [1] * len(prompt)}
        for side, ids in sides.items():
            joined = prompt + ids
            tokens |= {f"{side}_input_ids": joined, f"{side}_attention_mask": [1] * len(joined)}
            tokens[f"{side}_labels"] = [-100] * len(prompt) + ids
        return tokens

    def responses(self, value: list[dict[str, Any]]) -> list[list[int]]:
        """The token ids of each response."""
        names = ("chosen_labels", "rejected_labels") if self.whole else self.names[1:]
        return [[token for token in pair[name] if token >= FIRST] for pair in value for name in names]

    @override
    def sizes(self, value: list[dict[str, Any]]) -> Sizes:
        return Sizes(rows=len(self.responses(value)))

    @override
    def take(self, value: list[dict[str, Any]], sizes: Sizes) -> Mapping[str, Tensor]:
        if sizes.width is None:
            return {}
        present = {token for row in self.responses(value) for token in row}
        ids = token_ids(len(self.responses(value)), sizes.width).tolist()
        return {"mask": torch.tensor([[token in present for token in row] for row in ids])}

    @override
    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"mask": batch.mask}


@dataclass(frozen=True, slots=True)
class TripleFeatures(PairFeatures):
    """:class:`PairFeatures` with a third response, which equals the preferred one."""

    def feature(self, chosen: list[int], rejected: list[int], most: int) -> dict[str, Any]:
        """The token ids of one pair and of the third response."""
        pair = PairFeatures.feature(self, chosen, rejected, most)
        return pair | {"reference_ids": list(pair[self.names[1]])}


def longest(inputs: Inputs) -> int:
    """The length of the longest sequence, if the prompt has one token."""
    return int(inputs.mini_batch.mask.sum(1).max()) + 1


def tokens_have_probabilities(inputs: Inputs) -> str:
    """The reason to skip a batch with a log-prob near 0, or above, in policy or reference; empty otherwise.

    :class:`Backbone` gives the remaining probability to another token.
    """
    batch = inputs.batch
    certain = (batch.logprob > LARGEST) | (batch.ref_logprob > LARGEST)
    return "the probability of a token is not below 1" if bool((certain & batch.mask).any()) else ""


def as_pairs(batch: Batch) -> Batch:
    """An even number of rows, or a single one, each with a trained token, and all log-probs below 0."""
    return trains_with_probability(even_rows(batch))


def trains_with_probability(batch: Batch, *, rows: bool = True) -> Batch:
    """Make all log-probs negative and, unless ``rows`` is False, give each row a trained token."""
    changed: dict[str, Tensor] = {}
    batch = trained_rows(batch) if rows else batch
    for name in ("logprob", "ref_logprob"):
        column: Tensor = getattr(batch, name)
        if bool((column > LARGEST).any()):
            changed[name] = torch.where(column > LARGEST, -0.125 - column.abs(), column)
    return with_columns(batch, **changed) if changed else batch
