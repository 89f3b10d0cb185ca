"""Log-probs from hidden states, and from the logits of all tokens: ``python -m benchmarks.costs.projection FORM``.

``time`` runs both in turn; ``memory-ours`` and ``memory-logits`` measure one, in a process that has run nothing else.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.costs.memory import peak_above
from rl_sentinel.signal.logprob import logprobs_and_entropy_from_hidden, logprobs_from_hidden

#: Tokens, vocabulary, and the size of a hidden state.
TOKENS, VOCABULARY, HIDDEN = 1024, 32_768, 1024

TEMPERATURE = 0.7

#: Runs of each side in turn; the least time counts, since another process can only add to it.
ROUNDS = 7

Both = tuple[Tensor, Tensor]


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, the head's weight, tokens; both want a gradient."""
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, HIDDEN, generator=draw, dtype=dtype).requires_grad_()
    weight = (torch.randn(VOCABULARY, HIDDEN, generator=draw, dtype=dtype) / HIDDEN**0.5).requires_grad_()
    return hidden, weight, torch.randint(VOCABULARY, (TOKENS,), generator=draw)


def ours(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """In blocks."""
    everywhere = torch.ones_like(token, dtype=torch.bool)
    return logprobs_from_hidden(hidden, weight, token, mask=everywhere, temperature=TEMPERATURE)


def from_logits(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """As it is usually written."""
    logits = (hidden @ weight.t()) / TEMPERATURE
    return torch.log_softmax(logits, dim=-1).gather(-1, token.unsqueeze(-1)).squeeze(-1)


def ours_with_entropy(hidden: Tensor, weight: Tensor, token: Tensor) -> Both:
    """In blocks, with the entropy."""
    everywhere = torch.ones_like(token, dtype=torch.bool)
    return logprobs_and_entropy_from_hidden(hidden, weight, token, mask=everywhere, temperature=TEMPERATURE)


def from_logits_with_entropy(hidden: Tensor, weight: Tensor, token: Tensor) -> Both:
    """As it is usually written, with the entropy."""
    every = torch.log_softmax((hidden @ weight.t()) / TEMPERATURE, dim=-1)
    return every.gather(-1, token.unsqueeze(-1)).squeeze(-1), -(every.exp() * every).sum(dim=-1)


#: What is computed -> ours, and with all logits.
SIDES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "log-probs": (ours, from_logits),
    "log-probs and entropy": (ours_with_entropy, from_logits_with_entropy),
}


def forward(side: Callable[..., Any], columns: tuple[Tensor, ...]) -> Any:  # noqa: ANN401 - one tensor or two
    """Without a gradient."""
    with torch.no_grad():
        return side(*columns)


def gradient(side: Callable[..., Any], columns: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The gradient to hidden states and weight."""
    result = side(*columns)
    total = result.sum() if isinstance(result, Tensor) else result[0].sum() + 0.1 * result[1].sum()
    return torch.autograd.grad(total, columns[:2])


def largest_difference(one: Any, two: Any) -> float:  # noqa: ANN401 - as above
    """Relative to the largest number of the second."""
    pairs = zip(one, two, strict=True) if isinstance(one, tuple) else [(one, two)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def times(part: str, run: Callable[..., Any], columns: tuple[Tensor, ...]) -> list[float]:
    """The least seconds of each side, in turn."""
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for n, side in enumerate(SIDES[part]):
            start = time.process_time()
            run(side, columns)
            least[n] = min(least[n], time.process_time() - start)
    return least


def main(form: str) -> None:
    """Print JSON lines."""
    torch.set_num_threads(1)
    columns = inputs()
    for part, sides in SIDES.items():
        for run in (forward, gradient):
            row: dict[str, Any] = {"part": part, "run": run.__name__}
            if form == "time":
                row["ours"], row["theirs"] = times(part, run, columns)
                row["float32"] = largest_difference(*(run(side, columns) for side in sides))
                wide = inputs(torch.float64)
                row["float64"] = largest_difference(*(run(side, wide) for side in sides))
            else:
                side = sides[form == "memory-logits"]
                row["peak"] = peak_above(partial(run, side, columns))
            print(json.dumps(row), flush=True)  # noqa: T201 - read by the parent


if __name__ == "__main__":
    main(sys.argv[1])
