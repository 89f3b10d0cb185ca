"""Compute log-probs and sums of squared probabilities of sampled responses, in parts and over ranks."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from rl_sentinel.signal.logprob import logprobs, logprobs_from_hidden, squared_probabilities_from_hidden
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.model.device import send
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.model.prefill import response_states
from rl_sentinel.train.model.readout import Readout
from rl_sentinel.train.run.distributed import ALONE, Ranks

#: One call of the model on whole sequences, instead of a prefill and a second call, pays up to this many more tokens
#: times weights (about a millisecond of a processor).
SINGLE_PASS = 2**25

#: Computes a number per response token from hidden states and the head's weight, or from logits and None.
Scored = Callable[[Tensor, Tensor | None, Tensor, Tensor], Tensor]


def response_logprobs(
    policy: Policy, laid: Laid, rows: Int[Tensor, " n"], *, temperature: float
) -> Float[Tensor, "n T"]:
    """Log-probs in nats of the responses of some rows; exactly 0 after a response. Differentiable.

    Equal rows go through the model once; without ``single_pass``, so does a prompt that rows share, where this saves
    more than it costs.
    """

    def of(states: Tensor, weight: Tensor | None, token: Tensor, mask: Tensor) -> Tensor:
        if weight is None:
            return logprobs(states, token, mask=mask, temperature=temperature)
        return logprobs_from_hidden(states, weight, token, mask=mask, temperature=temperature)

    return _computed(policy, laid, rows, of)


def squared_probabilities(
    policy: Policy, laid: Laid, rows: Int[Tensor, " n"], *, temperature: float
) -> Float[Tensor, "n T"]:
    """The sum of squared probabilities over the vocabulary at each response token, at the temperature.

    Exactly 0 after a response.
    """

    def of(states: Tensor, weight: Tensor | None, token: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG001 - as above
        if weight is None:
            squares = torch.softmax(states.float() / temperature, dim=-1).square().sum(dim=-1)
            return torch.where(mask, squares, 0.0)
        return squared_probabilities_from_hidden(states, weight, mask=mask, temperature=temperature)

    return _computed(policy, laid, rows, of)


@torch.no_grad()
def compute_for_rows(  # noqa: PLR0913 - the model, the rows, and how they are divided
    policy: Policy,
    laid: Laid,
    *,
    temperature: float,
    size: int,
    budget: int | None = None,
    ranks: Ranks = ALONE,
    function: Callable[..., Tensor] = response_logprobs,
    rows: Int[Tensor, " n"] | None = None,
) -> Float[Tensor, "B T"]:
    """Apply one of the functions above to all rows, or to ``rows`` with 0 elsewhere, without a gradient.

    The rows are divided over ranks and into parts of similar length, as in ``Ranks.own_parts``.
    Log-probs stay on the model's device until all parts are computed, so that no part waits for it.
    """
    rows = torch.arange(len(laid.length), device=laid.token.device) if rows is None else rows
    rows = sort_by_length(laid, rows)
    values = torch.zeros(laid.rollout.mask.shape, device=laid.token.device)  # type: ignore[union-attr]  # laid out padded
    parts, computed = ranks.own_parts(rows, size=size, budget=budget, lengths=laid.prompt_length + laid.length), []
    for part in parts:
        of_part = part if len(part) else rows[:1]  # a rank without rows still runs the sharded model
        computed.append(function(policy, laid, of_part, temperature=temperature)[: len(part)])
    values[torch.cat(parts)] = torch.cat(computed).to(values.device)
    return ranks.all_reduce(values)


def sort_by_length(laid: Laid, rows: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Sort rows by sequence length, so that parts of them have little padding."""
    return rows[(laid.prompt_length + laid.length)[rows].argsort(stable=True)]


def _computed(policy: Policy, laid: Laid, rows: Int[Tensor, " n"], of: Scored) -> Float[Tensor, "n T"]:
    """The result of ``of`` at the response positions, computed once per distinct row and returned for each row.

    The batch is on the CPU, where its lengths and equal rows are read; only tokens are sent to the model.
    """
    rows, copies = _distinct(laid, rows)
    token, prompt_length, length = laid.token[rows], laid.prompt_length[rows], laid.length[rows]
    place = torch.arange(int(length.max()), device=token.device)
    response = token.gather(1, (prompt_length.unsqueeze(1) + place).clamp(max=token.shape[1] - 1))

    on_device, mask = (send(x, policy.device) for x in (response, place < length.unsqueeze(1)))

    def scored(states: Tensor, weight: Tensor | None) -> Tensor:
        return of(states, weight, on_device, mask)

    prompts = [tuple(t[:n]) for t, n in zip(token.tolist(), prompt_length.tolist(), strict=True)]
    if policy.single_pass or _is_cheaper_whole(policy, prompts):
        values = _single_pass(policy, token, prompt_length, on_device, scored)
    else:
        values = policy.read(response_states(policy, prompts, on_device), scored)
    return functional.pad(values, (0, _width(laid) - values.shape[1]))[send(copies, policy.device)]


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


def _is_cheaper_whole(policy: Policy, prompts: Sequence[tuple[int, ...]]) -> bool:
    """Whether no prompt is shared, or shared ones are so short, or the model so small, that a prefill saves less."""
    shared = len(prompts) - len(set(prompts))
    more = shared * max(len(p) for p in prompts) + len(prompts)
    return shared == 0 or more * policy.weights <= SINGLE_PASS


def _single_pass(policy: Policy, token: Tensor, prompt_length: Tensor, response: Tensor, of: Readout) -> Tensor:
    """The result of ``of`` at the response tokens, ``[n, T]``, in one call of the model on whole sequences.

    FSDP requires it, since all ranks must call the model equally often. ``of`` is computed inside the pass, where the
    head's weight is not sharded. ``response`` is on the model's device.
    """
    width = response.shape[1]
    before = send(prompt_length.unsqueeze(1) - 1 + torch.arange(width, device=token.device), policy.device)

    def at_responses(states: Tensor, weight: Tensor | None) -> Tensor:
        place = before.clamp(max=states.shape[1] - 1).unsqueeze(2).expand(-1, -1, states.shape[2])
        return of(states.gather(1, place), weight)

    return policy(send(token[:, : int(prompt_length.max()) + width], policy.device), of=at_responses)
