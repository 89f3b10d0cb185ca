"""Reference log-probs and entropy, mini-batches of prompts, trajectory outcomes, merged turns; by plain loops."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings


def _shares(batch: Batch, settings: Settings) -> Tensor:
    """Probabilities over the vocabulary at each token, at the temperature; differentiable by the logits."""
    scaled = batch.logits.double() / float(settings.get("temperature") or 1)
    weights = torch.exp(scaled - scaled.detach().amax(dim=2, keepdim=True))
    return weights / weights.sum(dim=2, keepdim=True)


def _logprob(batch: Batch, settings: Settings) -> Tensor:
    share = _shares(batch, settings)
    own = [[share[b, t, int(batch.token[b, t])] for t in range(batch.width)] for b in range(batch.rows)]
    return torch.where(batch.mask, torch.stack([torch.stack(row) for row in own]).log(), 0.0)


def _entropy(batch: Batch, settings: Settings) -> Tensor:
    share = _shares(batch, settings)
    possible = torch.where(share > 0, share, 1.0)  # an entry of probability 0 adds 0 to the sum and to the gradient
    return torch.where(batch.mask, -(share * possible.log()).sum(dim=2), 0.0)


def _squares(batch: Batch, settings: Settings) -> Tensor:
    return torch.where(batch.mask, _shares(batch, settings).square().sum(dim=2), 0.0)


def _until_end(batch: Batch, settings: Settings) -> Tensor:
    """1 at each token without an end token before it; padding after the end is treated like any token."""
    ends = {settings["end"], settings.get("other_end")}
    rows = [[float(not ends & set(row[:t])) for t in range(len(row))] for row in batch.token.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def _prompts(batch: Batch) -> list[int]:
    """The prompts in the order of their first rows."""
    return list(dict.fromkeys(batch.group.tolist()))


def _turns(batch: Batch, settings: Settings) -> Tensor:
    """The mini-batch of each row, if each mini-batch takes the same number of consecutive prompts."""
    order, size = _prompts(batch), int(settings["prompts"] or 1)
    return torch.tensor([order.index(g) // size for g in batch.group.tolist()], dtype=torch.float64)


def _largest(batch: Batch, settings: Settings) -> Tensor:
    return torch.tensor(float(min(len(_prompts(batch)), int(settings["prompts"] or 1))))


def _count(batch: Batch, settings: Settings) -> Tensor:
    size = int(settings["prompts"] or 1)
    return torch.tensor(float(sum(1 for n in range(len(_prompts(batch))) if n % size == 0)))


def _outcomes(batch: Batch, _settings: Settings) -> Tensor:
    """The outcome of each live trajectory minus the mean of its prompt, at each of its live steps.

    A trajectory's outcome is that of its last step, and it counts once however many steps it has.
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


def _before(batch: Batch, _settings: Settings) -> Tensor:
    rows = [[sum(row[:t]) for t in range(len(row))] for row in batch.mask.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def _joined(batch: Batch, settings: Settings) -> Tensor:
    """The number of sequences after merging; dropping the history every ``forgets`` turns starts a new one."""
    every = int(settings["forgets"] or 0) or batch.rows
    return torch.tensor(float(len(range(0, batch.rows, every))))


#: A turn: its trajectory, the tokens that it read, the tokens that it sampled, and further values per sampled token.
Turn = tuple[str, list[int], list[int], list[list[float]]]


def merge_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Append each turn whose prompt extends the previous sequence to it; values of tokens in between are 0.

    Example:
        >>> merge_turns([("a", [1], [2], [[1.0]]), ("a", [1, 2, 3], [4], [[5.0]]), ("a", [9], [2], [[1.0]])])
        [('a', [1], [2, 3, 4], [[1.0, 0.0, 5.0]]), ('a', [9], [2], [[1.0]])]
    """
    merged: list[Turn] = []
    for name, prompt, response, values in turns:
        before = merged[-1][1] + merged[-1][2] if merged and merged[-1][0] == name else []
        if before and prompt[: len(before)] == before:
            _, start, own, numbers = merged.pop()
            between = prompt[len(before) :]
            joined = [x + [0.0] * len(between) + y for x, y in zip(numbers, values, strict=True)]
            merged.append((name, start, own + between + response, joined))
        else:
            merged.append((name, prompt, response, values))
    return merged


def _gains(batch: Batch, _settings: Settings) -> Tensor:
    rows = [sum(batch.token_reward[b, : int(batch.length[b])].tolist()) for b in range(batch.rows)]
    return torch.tensor(sum(rows), dtype=torch.float64)


#: Algorithm -> values at trained tokens.
ORDERED: Mapping[str, Callable[[Batch, Settings], Tensor]] = {"trained tokens before": _before}

#: Algorithm with settings -> values per row or token, at all positions; 0 at untrained ones.
LAID_OUT: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "log-prob of the token": _logprob,
    "entropy of the logits": _entropy,
    "sum of squared probabilities": _squares,
    "1 up to the first end token": _until_end,
    "values of trained tokens": lambda batch, _settings: torch.where(batch.mask, batch.value.double(), 0.0),
    "mini-batches of prompts in turn": _turns,
    "outcomes of trajectories, centred": _outcomes,
    "newest weights": lambda batch, _settings: torch.zeros(batch.rows, dtype=torch.float64),
}

#: Algorithm with settings -> one number for the batch.
COUNTS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "prompts of the largest mini-batch": _largest,
    "mini-batches": _count,
    "sequences after merging": _joined,
    "turns": lambda batch, _settings: torch.tensor(float(batch.rows)),
    "mean entropy of trained tokens at the temperature": lambda batch, settings: _entropy(batch, settings)[
        batch.mask
    ].mean(),
    "tokens of responses and of prompts of one token": lambda batch, _settings: (batch.length + 1).sum().double(),
    "trained tokens": lambda batch, _settings: batch.mask.sum().double(),
    "token rewards of responses": _gains,
}
