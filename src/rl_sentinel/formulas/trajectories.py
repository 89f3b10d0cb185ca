"""Trajectories of several steps: centered outcomes, and turns that are merged into sequences."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings


def _outcomes(batch: Batch, _settings: Settings) -> Tensor:
    """The outcome of each live trajectory minus the mean of its prompt, at each of its live steps; 0 if it is alone.

    The outcome of a trajectory is the outcome of its last step. Each trajectory counts once, whatever its number of
    steps.
    """
    trajectory, group, live = (x.tolist() for x in (batch.trajectory, batch.group, batch.live))
    outcome = {i: float(batch.reward[b]) for b, i in enumerate(trajectory) if bool(batch.last_step[b])}
    alive = {i: g for i, g, a in zip(trajectory, group, live, strict=True) if a}
    found = torch.zeros(batch.rows, dtype=torch.float64)
    for b, i in enumerate(trajectory):
        others = [outcome[j] for j, g in alive.items() if g == group[b]]
        if live[b] and len(others) > 1:
            found[b] = outcome[i] - sum(others) / len(others)
    return found


def _joined(batch: Batch, settings: Settings) -> Tensor:
    """The number of sequences after merging; after every ``forgets`` turns, the history is dropped and starts again."""
    every = int(settings["forgets"] or 0) or batch.rows
    return torch.tensor(float(len(range(0, batch.rows, every))))


#: A turn: its trajectory, the tokens that it read, the tokens that it sampled, and further values per sampled token.
Turn = tuple[str, list[int], list[int], list[list[float]]]


def merge_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Append each turn to the previous sequence if its prompt extends this sequence and the trajectory is the same.

    Tokens between the previous sequence and the turn have values of 0.

    Example:
        >>> merge_turns([("a", [1], [2], [[1.0]]), ("a", [1, 2, 3], [4], [[5.0]]), ("a", [9], [2], [[1.0]])])
        [('a', [1], [2, 3, 4], [[1.0, 0.0, 5.0]]), ('a', [9], [2], [[1.0]])]
    """
    merged: list[Turn] = []
    for name, prompt, response, values in turns:
        before = merged[-1][1] + merged[-1][2] if merged and merged[-1][0] == name else []
        if before and prompt[: len(before)] == before:
            _, start, tokens, numbers = merged.pop()
            between = prompt[len(before) :]
            joined = [x + [0.0] * len(between) + y for x, y in zip(numbers, values, strict=True)]
            merged.append((name, start, tokens + between + response, joined))
        else:
            merged.append((name, prompt, response, values))
    return merged


#: Algorithm -> a value per row.
OUTCOMES: Mapping[str, Callable[[Batch, Settings], Tensor]] = {"outcomes of trajectories, centered": _outcomes}

#: Algorithm -> one number for the batch.
COUNTS_OF_TURNS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "sequences after merging": _joined,
    "turns": lambda batch, _settings: torch.tensor(float(batch.rows)),
}
