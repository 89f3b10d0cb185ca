"""GOLD in TRL: the probability, by the chain rule, of several tokens that are one token of the other tokenizer."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.requirements import every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import trains_whole_completions
from rl_sentinel.adapters.trl.universal_logits import LOSS, distance_settings
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

ENTRY = f"{LOSS}._merge_probabilities_with_alignment_groups"

#: Field of the loss with the strategy of merging, in releases that have several.
_STRATEGY = "token_merge_strategy"

#: Least probability of a token: the target bounds smaller ones.
LEAST = 1e-6

_CLAIMS = claims(
    "gold_trainer.py, _merge_probabilities_with_alignment_groups, docstring: the conditional probabilities of the "
    "actual tokens are multiplied, so that the actual sequence has its probability by the chain rule",
    output_algorithms={"logprob": "log-prob of the token"},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the merged probability of each response, with every merge strategy of the release."""
    if not target.has(ENTRY):
        return
    if why := target.fails(LOSS):
        yield Unbound(ENTRY, "batch", why)
        return
    strategies = ("observed", "bayesian") if _STRATEGY in inspect.getsource(target.find(LOSS)) else ("observed",)
    yield from bindable(target, _merged({f"merged tokens, {name}": {"strategy": name} for name in strategies}))


def token_is_likely(inputs: Inputs) -> str:
    """The reason to skip a batch with a sampled token less likely than :data:`LEAST`; empty otherwise."""
    batch = inputs.batch
    known = batch.logits.double().log_softmax(2).gather(2, batch.token.unsqueeze(2)).squeeze(2)
    return "a sampled token is too unlikely" if bool((known.exp() < LEAST)[batch.mask].any()) else ""


def merged_logprobs(  # noqa: PLR0913 - the parts of a loss
    entry: Callable[..., Tensor],
    kind: Callable[..., Any],
    logits: Tensor,
    tokens: Tensor,
    trained: Tensor,
    strategy: str,
) -> Tensor:
    """The log-prob ``[B, T]`` that each token adds when it is merged with all earlier tokens of its row.

    In the merged distribution, the probability of the actual tokens is at the entry of the first token or, with the
    strategy ``bayesian``, at the entry of the last token.
    """
    loss = kind(SimpleNamespace(**distance_settings(1.0, aligned=True), uld_token_merge_strategy=strategy))
    has_tokens = "token_ids" in inspect.signature(entry).parameters
    added = torch.zeros(tokens.shape, dtype=logits.dtype)
    for row, length in enumerate(trained.bool().sum(1).tolist()):
        probs, ids = logits[row, :length].softmax(1), tokens[row, :length].tolist()
        before: Tensor | float = 0.0
        for count in range(1, length + 1):
            merged = entry(loss, probs, [list(range(count))], *([ids] if has_tokens else []))
            known = merged[0, ids[count - 1 if strategy == "bayesian" else 0]].log()
            added[row, count - 1], before = known - before, known
    return added


def _merged(settings: dict[str, Settings]) -> Boundary:
    return one_call(
        path=ENTRY,
        stage="batch",
        call=merged_logprobs,
        name="computed",
        arguments={
            **functions(entry=ENTRY, kind=LOSS),
            "logits": Column("logits"),
            "tokens": Column("token"),
            "trained": ResponseMask(),
            "strategy": Knob("strategy"),
        },
        produced_by={
            "logits": "gold_trainer.py, _compute_distillation_loss: probabilities and ids of a row's completion, and "
            "groups of its positions that are one text for both tokenizers"
        },
        outputs={"logprob": Output("B T", "nats", "logprob", at=Use("computed"), form=Padded())},
        settings=settings,
        claims=_CLAIMS,
        reach="use_uld_loss=True, use_extended_uld=True: a token that the other tokenizer splits",
        requires=(every_row_trains, no_empty_response, trains_whole_completions, token_is_likely),
    )
