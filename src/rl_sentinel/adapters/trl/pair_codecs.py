"""Arguments that hold pairs of responses: features for a collator, and the log-probs of their tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import OneColumn
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.trl.token_model import CUT, FIRST, LARGEST, PROMPT, token_ids
from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.core.codec import Codec, Inputs, Sizes

#: Prompts have one token more than this at most.
SHORTEST = 1

#: Tokens that a truncation cuts off.
CUT_OFF = 2

Cut = Literal["", "keep_start", "keep_end"]


class NoPadding(Padded):
    """``[B, T]`` to which a layout adds nothing: a collator pads to the longest sequence."""

    @property
    def axes(self) -> frozenset[Any]:
        """No field of the layout."""
        return frozenset()


def trained(column: Tensor, batch: Batch) -> Tensor:
    """The numbers of trained tokens; other tokens are not in the data set."""
    return torch.where(batch.mask, column, torch.zeros_like(column))


@dataclass(frozen=True, slots=True)
class TokenLogprobs(OneColumn):
    """The log-probs ``[B, T]`` that a model gives the tokens, as a leaf that the target differentiates itself."""

    name: str
    leaf: bool = True

    def put(self, inputs: Inputs) -> Tensor:
        """The log-probs, 0 elsewhere."""
        column: Tensor = trained(getattr(inputs.batch, self.name), inputs.batch)
        if not self.leaf:
            return column
        leaf = column.detach().clone().requires_grad_()
        inputs.leaves.append((column, leaf))
        return leaf

    def sizes(self, value: Tensor) -> Sizes:
        """Rows and width."""
        return Sizes(rows=value.shape[0], width=value.shape[1])

    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ARG002 - as they are
        """The log-probs."""
        return {self.name: value.detach()}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The log-probs, 0 elsewhere."""
        return {self.name: trained(getattr(batch, self.name), batch)}


@dataclass(frozen=True, slots=True)
class PairFeatures(Codec):
    """One dict per pair with the token ids of prompt and both completions, as the tokenized data set has them.

    Completions are the trained tokens of the rows: a data set of preferences masks none. Prompts of pairs have
    different lengths. ``whole`` rows hold prompt and completion with labels; otherwise completions come apart. With
    ``cut`` the rows of a pair are longer than :func:`longest` by tokens that the trainer cuts off. Prompts have up to
    ``prompts`` tokens.
    """

    whole: bool = False
    cut: Cut = ""
    names: tuple[str, ...] = field(default=("prompt_ids", "chosen_ids", "rejected_ids"))
    prompts: int = SHORTEST + 1

    @property
    def columns(self) -> frozenset[str]:
        """The mask: ids say which tokens are trained."""
        return frozenset({"mask"})

    def put(self, inputs: Inputs) -> list[dict[str, Any]]:
        """The features."""
        rows = self.rows(inputs)
        pairs = zip(rows[::2], rows[1::2], strict=True)
        return [self.feature(number, *pair, longest(inputs)) for number, pair in enumerate(pairs)]

    def rows(self, inputs: Inputs) -> list[list[int]]:
        """The ids of each response."""
        batch = inputs.batch
        ids = token_ids(batch.rows, batch.width).tolist()
        return [[i for i, one in zip(*row, strict=True) if one] for row in zip(ids, batch.mask.tolist(), strict=True)]

    def feature(self, number: int, chosen: list[int], rejected: list[int], most: int) -> dict[str, Any]:
        """The tokens of one pair."""
        room = most - max(len(chosen), len(rejected))
        prompt = [PROMPT] * (room if self.cut else SHORTEST + number % self.prompts)
        sides = {"chosen": chosen, "rejected": rejected}
        full = max(len(chosen), len(rejected))
        if self.cut == "keep_start":
            sides = {side: ids + [CUT] * CUT_OFF if len(ids) == full else ids for side, ids in sides.items()}
        if self.cut == "keep_end":
            prompt = [PROMPT] * (room + CUT_OFF)
        if self.cut == "keep_end" and room == 1:  # of the longest responses no token of the prompt stays
            sides = {side: [CUT] * CUT_OFF + ids if len(ids) == full else ids for side, ids in sides.items()}
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
        """The ids of each response, of the features."""
        names = ("chosen_labels", "rejected_labels") if self.whole else self.names[1:]
        return [[token for token in one[name] if token >= FIRST] for one in value for name in names]

    def sizes(self, value: list[dict[str, Any]]) -> Sizes:
        """Rows."""
        return Sizes(rows=len(self.responses(value)))

    def take(self, value: list[dict[str, Any]], sizes: Sizes) -> Mapping[str, Tensor]:
        """The mask."""
        if sizes.width is None:
            return {}
        present = {token for row in self.responses(value) for token in row}
        ids = token_ids(len(self.responses(value)), sizes.width).tolist()
        return {"mask": torch.tensor([[token in present for token in row] for row in ids])}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The mask."""
        return {"mask": batch.mask}


def longest(inputs: Inputs) -> int:
    """The longest sequence of a batch whose longest response follows a prompt of one token."""
    return int(inputs.mini_batch.mask.sum(1).max()) + 1


def rows_are_pairs(inputs: Inputs) -> str:
    """The rows are pairs of responses."""
    rows, parts = inputs.batch.rows, 2 * inputs.layout.micro_batches
    return "" if rows and rows % parts == 0 else "the rows do not divide into pairs of responses"


def tokens_have_probabilities(inputs: Inputs) -> str:
    """The log-probs of policy and reference are those of tokens that are not certain."""
    batch = inputs.batch
    certain = (batch.logprob > LARGEST) | (batch.ref_logprob > LARGEST)
    return "a log-prob is that of no probability below 1" if bool((certain & batch.mask).any()) else ""


def as_pairs(batch: Batch) -> Batch:
    """Pairs of responses: an even number of rows, each with a trained token, and log-probs below 0."""
    odd = batch.rows > 1 and batch.rows % 2
    even = take_rows(batch, torch.arange(batch.rows - 1)) if odd else batch
    return trains_with_probability(even)


def trains_with_probability(batch: Batch, *, rows: bool = True) -> Batch:
    """Log-probs below 0 and, unless ``rows`` is False, a trained token in each row; the batch itself if it is so."""
    changed: dict[str, Tensor] = {}
    if rows and not bool(batch.live.all()):
        changed["mask"] = torch.where(batch.live.unsqueeze(1), batch.mask, batch.valid)
    for name in ("logprob", "ref_logprob"):
        column: Tensor = getattr(batch, name)
        if bool((column > LARGEST).any()):
            changed[name] = torch.where(column > LARGEST, -0.125 - column.abs(), column)
    return with_columns(batch, **changed) if changed else batch
