"""A fake causal model: the output at a token depends on this token, the tokens before it, and its position."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

#: Log-prob of the tokens that occur only in prompts: their probability is in effect 0.
NEVER = -1e4


def prompt_tokens(row: int, length: int, vocabulary: int) -> list[int]:
    """The token ids of a row's prompt; the first token is unique, so the model recognizes the row by this token."""
    return [vocabulary + row, *((row + k) % vocabulary for k in range(1, length))]


def with_prompt_tokens(logits: Tensor) -> Tensor:
    """``[B, T, V + B]``: logits that also cover the first token of each prompt, which is never sampled."""
    return pad(logits, (0, logits.shape[0]), value=NEVER)


@dataclass
class CausalModel:
    """A fake causal model with known outputs for known sequences.

    Attributes:
        sequences: token ids of prompt and response of each row.
        answers: for each row, ``[n, K]``: the output at each of its n tokens, which is K logits, or one value.

    A token gets its known output if it attends to exactly the tokens of its sequence up to itself, at positions 0, 1,
    2, ...; otherwise it gets another output. Padding, and tokens after the end of the known sequence, get 0. A sequence
    with an unknown first token is compared with the first row.
    """

    sequences: list[list[int]]
    answers: list[Tensor]

    def __post_init__(self) -> None:
        """Index the sequences by their first token."""
        self._rows = {tokens[0]: row for row, tokens in enumerate(self.sequences)}

    def packed(self, ids: Tensor, positions: Tensor, starts: Iterable[int]) -> Tensor:
        """The outputs ``[N, K]`` for concatenated sequences.

        ``ids`` and ``positions`` are ``[N]``; ``starts`` has the index at which each sequence begins.
        """
        tokens, places = ids.tolist(), positions.tolist()
        bounds = [*starts, len(tokens)]
        spans = pairwise(bounds)
        return torch.cat([self._sequence(tokens[a:b], places[a:b], [True] * (b - a)) for a, b in spans])

    def padded(self, ids: Tensor, positions: Tensor, attended: Tensor) -> Tensor:
        """``[B, S, K]``: the outputs for one sequence per row; ids, positions and attention mask are ``[B, S]``."""
        rows = zip(ids.tolist(), positions.tolist(), attended.bool().tolist(), strict=True)
        return torch.stack([self._sequence(*row) for row in rows])

    def _sequence(self, tokens: list[int], places: list[int], attended: list[bool]) -> Tensor:
        context: list[int] = []
        first = next((token for token, counts in zip(tokens, attended, strict=True) if counts), -1)
        row = self._rows.get(first, 0)
        known, sequence = self.answers[row], self.sequences[row]
        other = known + torch.arange(1.0, known.shape[1] + 1, dtype=known.dtype)
        parts = []
        for token, place, counts in zip(tokens, places, attended, strict=True):
            if counts:
                context.append(token)
            n = len(context)
            if not counts or n > len(sequence):
                parts.append(torch.zeros_like(known[0]))
            else:
                parts.append((known if context == sequence[:n] and place == n - 1 else other)[n - 1])
        return torch.stack(parts)


def starts_of_positions(positions: Tensor) -> list[int]:
    """The start of each packed sequence, found from the position ids as attention kernels for packed sequences do."""
    restarts = [n for n, place in enumerate(positions.tolist()) if place == 0]
    return restarts if restarts[:1] == [0] else [0, *restarts]


def model_of(ids: Tensor, attended: Tensor, width: int, columns: Tensor) -> CausalModel:
    """The fake model whose outputs are given columns of a batch, one position earlier than in the response.

    Args:
        ids: ``[B, S]`` token ids of padded prompts and responses.
        attended: ``[B, S]`` attention mask.
        width: number of columns of the responses, at the end of the rows.
        columns: ``[B, T, K]`` outputs for the tokens of the responses: the model returns each output one
            position earlier, because a model predicts the next token.
    """
    sequences, answers = [], []
    for row, (tokens, inside) in enumerate(zip(ids, attended.bool(), strict=True)):
        length = int(inside[-width:].sum())
        sequence: list[int] = tokens[inside].tolist()
        prompt = len(sequence) - length
        fill = columns.new_full((1, columns.shape[2]), 0.25)
        sequences.append(sequence)
        answers.append(torch.cat([fill.repeat(prompt - 1, 1), columns[row, :length], fill]))
    return CausalModel(sequences, answers)
