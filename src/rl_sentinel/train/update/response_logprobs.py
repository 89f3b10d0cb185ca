"""Log-probs of sampled tokens under a model, at the places of the response."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from rl_sentinel.signal.logprob import logprobs
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import prefix
from rl_sentinel.train.run.distributed import ALONE, Ranks


def scored(policy: Policy, laid: Laid, rows: Int[Tensor, " n"], *, temperature: float) -> Float[Tensor, "n T"]:
    """Log-probs in nats of the responses of some rows; exactly 0 behind a response. Its gradient is the policy's.

    Rows that are the same, prompt and response, are read once, and so is a prompt that several of them have; responses
    are cut to the longest among them before the model reads them.
    """
    read = _read(policy, laid, rows)
    found = logprobs(read.logits, read.said, mask=read.real, temperature=temperature)
    return functional.pad(found, (0, _width(laid) - found.shape[1]))[read.copies]


def squared(policy: Policy, laid: Laid, rows: Int[Tensor, " n"], *, temperature: float) -> Float[Tensor, "n T"]:
    """The sum of squared probabilities over the vocabulary where each token was drawn; exactly 0 behind a response."""
    read = _read(policy, laid, rows)
    found = torch.softmax(read.logits.float() / temperature, dim=-1).square().sum(dim=-1) * read.real
    return functional.pad(found, (0, _width(laid) - found.shape[1]))[read.copies]


class _Read(NamedTuple):
    """Logits at each place of what was said, which places are responses, and which of these rows each row is."""

    logits: Float[Tensor, "m T V"]
    said: Int[Tensor, "m T"]
    real: Bool[Tensor, "m T"]
    copies: Int[Tensor, " n"]


def _read(policy: Policy, laid: Laid, rows: Int[Tensor, " n"]) -> _Read:
    rows, copies = _distinct(laid, rows)
    token, prompt_length, length = laid.token[rows], laid.prompt_length[rows], laid.length[rows]
    place = torch.arange(int(length.max()), device=token.device)
    said = token.gather(1, (prompt_length.unsqueeze(1) + place).clamp(max=token.shape[1] - 1))
    logits = (_at_once if policy.at_once else _behind_prompts)(policy, token, prompt_length, said)
    return _Read(logits, said, place < length.unsqueeze(1), copies)


def _width(laid: Laid) -> int:
    return laid.rollout.mask.shape[1]  # type: ignore[union-attr]  # laid out padded


def by_length(laid: Laid, rows: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The shortest sequence first, so that parts of them hold little padding."""
    return rows[(laid.prompt_length + laid.length)[rows].argsort(stable=True)]


def _distinct(laid: Laid, rows: Int[Tensor, " n"]) -> tuple[Int[Tensor, " m"], Int[Tensor, " n"]]:
    """One of each of the rows that are the same, and which of these each row is."""
    columns = (laid.token[rows].tolist(), laid.prompt_length[rows].tolist(), laid.length[rows].tolist())
    told = [(start, *token[: start + size]) for token, start, size in zip(*columns, strict=True)]
    first: dict[tuple[int, ...], int] = {}
    for sequence, row in zip(told, rows.tolist(), strict=True):
        first.setdefault(sequence, row)
    place = {sequence: n for n, sequence in enumerate(first)}
    device = rows.device
    return torch.tensor(list(first.values()), device=device), torch.tensor([place[s] for s in told], device=device)


def _behind_prompts(policy: Policy, token: Tensor, prompt_length: Tensor, said: Tensor) -> Tensor:
    """Logits of what is said, ``[n, T, V]``: prompts that are the same are read once."""
    prompts = [tuple(t[:n]) for t, n in zip(token.tolist(), prompt_length.tolist(), strict=True)]
    read, width = prefix(policy, prompts, width=said.shape[1]), said.shape[1] - 1
    if width == 0:
        return read.logits
    behind = policy(said[:, :width], real=read.followed(width), cache=read.memory)
    return torch.cat((read.logits, behind), dim=1)


def _at_once(policy: Policy, token: Tensor, prompt_length: Tensor, said: Tensor) -> Tensor:
    """The same by one pass over whole sequences: a sharded model, whose ranks must pass equally often, wants it."""
    width = said.shape[1]
    logits = policy(token[:, : int(prompt_length.max()) + width])
    before = prompt_length.unsqueeze(1) - 1 + torch.arange(width, device=token.device)
    return logits.gather(1, before.clamp(max=logits.shape[1] - 1).unsqueeze(2).expand(-1, -1, logits.shape[2]))


@torch.no_grad()
def scored_all(  # noqa: PLR0913 - who is asked, of what, how, and which rows on which rank
    policy: Policy,
    laid: Laid,
    *,
    temperature: float,
    size: int,
    ranks: Ranks = ALONE,
    of: Callable[..., Tensor] = scored,
    rows: Int[Tensor, " n"] | None = None,
) -> Float[Tensor, "B T"]:
    """The same for all rows, or for these and 0 elsewhere, some at a time on each rank, without a gradient.

    Rows of like length go together. ``of`` is :func:`scored` or :func:`squared`.
    """
    rows = torch.arange(len(laid.length), device=laid.token.device) if rows is None else rows
    rows = by_length(laid, rows)
    found = torch.zeros(laid.rollout.mask.shape, device=laid.token.device)  # type: ignore[union-attr]  # as above
    for part in ranks.mine(rows, size=size):
        reads = part if len(part) else rows[:1]  # a rank without rows goes through the model all the same
        found[part] = of(policy, laid, reads, temperature=temperature)[: len(part)]
    return ranks.added(found)
