"""Compute log-probs of sampled responses under a policy."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from rl_sentinel.signal.logprob import logprobs
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import prefill
from rl_sentinel.train.run.distributed import ALONE, Ranks


def response_logprobs(
    policy: Policy, laid: Laid, rows: Int[Tensor, " n"], *, temperature: float
) -> Float[Tensor, "n T"]:
    """Log-probs in nats of the responses of some rows; exactly 0 after a response. Differentiable.

    Equal rows go through the model once, and so does a prompt that rows share; responses are cut to the longest one.
    """
    part = _forward(policy, laid, rows)
    values = logprobs(part.logits, part.token, mask=part.mask, temperature=temperature)
    return functional.pad(values, (0, _width(laid) - values.shape[1]))[part.copies]


def squared_probabilities(
    policy: Policy, laid: Laid, rows: Int[Tensor, " n"], *, temperature: float
) -> Float[Tensor, "n T"]:
    """The sum of squared probabilities over the vocabulary at each response token; exactly 0 after a response."""
    part = _forward(policy, laid, rows)
    values = torch.softmax(part.logits.float() / temperature, dim=-1).square().sum(dim=-1) * part.mask
    return functional.pad(values, (0, _width(laid) - values.shape[1]))[part.copies]


@torch.no_grad()
def compute_for_rows(  # noqa: PLR0913 - the model, the rows, and how they are divided
    policy: Policy,
    laid: Laid,
    *,
    temperature: float,
    size: int,
    ranks: Ranks = ALONE,
    function: Callable[..., Tensor] = response_logprobs,
    rows: Int[Tensor, " n"] | None = None,
) -> Float[Tensor, "B T"]:
    """Apply one of the functions above to all rows, or to ``rows`` with 0 elsewhere, without a gradient.

    The rows are divided over ranks and into parts of ``size`` rows of similar length.
    """
    rows = torch.arange(len(laid.length), device=laid.token.device) if rows is None else rows
    rows = sort_by_length(laid, rows)
    values = torch.zeros(laid.rollout.mask.shape, device=laid.token.device)  # type: ignore[union-attr]  # laid out padded
    for part in ranks.own_parts(rows, size=size):
        computed = part if len(part) else rows[:1]  # a rank without rows still runs the sharded model
        values[part] = function(policy, laid, computed, temperature=temperature)[: len(part)]
    return ranks.all_reduce(values)


def sort_by_length(laid: Laid, rows: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Sort rows by sequence length, so that parts of them have little padding."""
    return rows[(laid.prompt_length + laid.length)[rows].argsort(stable=True)]


class _Forward(NamedTuple):
    """Logits and token at each response position of the distinct rows, and the distinct row of each row."""

    logits: Float[Tensor, "m T V"]
    token: Int[Tensor, "m T"]
    mask: Bool[Tensor, "m T"]
    copies: Int[Tensor, " n"]


def _forward(policy: Policy, laid: Laid, rows: Int[Tensor, " n"]) -> _Forward:
    rows, copies = _distinct(laid, rows)
    token, prompt_length, length = laid.token[rows], laid.prompt_length[rows], laid.length[rows]
    place = torch.arange(int(length.max()), device=token.device)
    response = token.gather(1, (prompt_length.unsqueeze(1) + place).clamp(max=token.shape[1] - 1))
    logits = (_single_pass if policy.single_pass else _after_prefill)(policy, token, prompt_length, response)
    return _Forward(logits, response, place < length.unsqueeze(1), copies)


def _width(laid: Laid) -> int:
    return laid.rollout.mask.shape[1]  # type: ignore[union-attr]  # laid out padded


def _distinct(laid: Laid, rows: Int[Tensor, " n"]) -> tuple[Int[Tensor, " m"], Int[Tensor, " n"]]:
    """The distinct rows, and for each row the index of its distinct row."""
    columns = (laid.token[rows].tolist(), laid.prompt_length[rows].tolist(), laid.length[rows].tolist())
    sequences = [(start, *token[: start + size]) for token, start, size in zip(*columns, strict=True)]
    first: dict[tuple[int, ...], int] = {}
    for sequence, row in zip(sequences, rows.tolist(), strict=True):
        first.setdefault(sequence, row)
    place = {sequence: n for n, sequence in enumerate(first)}
    device = rows.device
    return torch.tensor(list(first.values()), device=device), torch.tensor([place[s] for s in sequences], device=device)


def _after_prefill(policy: Policy, token: Tensor, prompt_length: Tensor, response: Tensor) -> Tensor:
    """Logits of the response tokens, ``[n, T, V]``, after a prefill of the distinct prompts."""
    prompts = [tuple(t[:n]) for t, n in zip(token.tolist(), prompt_length.tolist(), strict=True)]
    prefilled, width = prefill(policy, prompts, width=response.shape[1]), response.shape[1] - 1
    if width == 0:
        return prefilled.logits
    rest = policy(response[:, :width], key_mask=prefilled.extended_mask(width), cache=prefilled.cache)
    return torch.cat((prefilled.logits, rest), dim=1)


def _single_pass(policy: Policy, token: Tensor, prompt_length: Tensor, response: Tensor) -> Tensor:
    """The same in one forward pass, as FSDP requires: all ranks must run the model equally often."""
    width = response.shape[1]
    logits = policy(token[:, : int(prompt_length.max()) + width])
    before = prompt_length.unsqueeze(1) - 1 + torch.arange(width, device=token.device)
    return logits.gather(1, before.clamp(max=logits.shape[1] - 1).unsqueeze(2).expand(-1, -1, logits.shape[2]))
