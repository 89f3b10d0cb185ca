"""Boundaries of functions that compute log-probs, entropy or other numbers per token from logits."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import AfterPrompt, Padded
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.world import group
from rl_sentinel.core.boundary import Boundary, Output, Step
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: What a function may compute of each token, and the name of its formula.
FORMULAS: Mapping[str, str] = {
    "logprob": "log-prob of the token",
    "entropy": "entropy of the logits",
    "pi_squared": "sum of squared probabilities",
}

_UNITS = {"logprob": "nats", "entropy": "nats", "pi_squared": ""}


class OneRank:
    """Megatron's parallel state, of which functions of a split vocabulary ask for the group of their ranks."""

    @staticmethod
    def get_tensor_model_parallel_group() -> Any:  # noqa: ANN401 - a process group
        """The group of this process alone."""
        return group()


def uncompiled(*_functions: object, **_options: object) -> Callable[[Any], Any]:
    """A compiler that leaves functions as they are."""
    return lambda function: function


def flat(compute: Callable[..., Tensor], logits: Tensor, **options: Any) -> Tensor:  # noqa: ANN401 - plain values
    """A function of ``[N, V]`` logits, at the tokens of all rows end to end."""
    return compute(logits.reshape(-1, logits.shape[-1]), **options).view(logits.shape[:-1])


def next_tokens(compute: Callable[..., Tensor], logits: Tensor, tokens: Tensor, **options: Any) -> Tensor:  # noqa: ANN401 - plain values
    """A function of full sequences that shifts them itself: logits at each position, and the tokens at all of them.

    Prompts are of one token; the logits of the last token predict what comes after it, which nobody knows.
    """
    last = torch.zeros_like(logits[:, :1])
    return compute(torch.cat([logits, last], dim=1), tokens, **options)


def slope_at_token(compute: Callable[..., Tensor], logits: Tensor, tokens: Tensor, **options: Any) -> Tensor:  # noqa: ANN401 - plain values
    """The gradient of the sum of all numbers to the logit of each token, as a loss would take it."""
    leaf = (logits.detach() * 1).requires_grad_()
    torch.autograd.backward([compute(leaf * 1, **options).sum()])
    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return gradient.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def differentiated(  # noqa: PLR0913 - the parts of one description
    path: str,
    *,
    cite: str,
    reach: str,
    produced_by: str,
    setting: str,
    arguments: Mapping[str, Codec] | None = None,
    doubles: Mapping[str, Callable[..., Any]] | None = None,
) -> Boundary:
    """A function of logits alone that has a backward pass of its own, which the call runs."""
    step = Step(
        call=slope_at_token,
        name="slope",
        arguments={
            "0": Constant(Function(path)),
            "1": Column("logits"),
            "2": Column("token"),
            **(arguments or {}),
        },
        doubles=doubles or {},
        produced_by={"1": produced_by},
    )
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        outputs={"slope": Output("B T", "", "", at=Use("slope"), form=Padded())},
        settings={setting: {}},
        claims=claims(cite),
        reach=reach,
    )


def kernel(  # noqa: PLR0913 - the parts of one description
    path: str,
    quantity: str,
    *,
    cite: str,
    reach: str,
    produced_by: str,
    setting: str = "default",
    arguments: Mapping[str, Codec] | None = None,
    call: Callable[..., Any] | None = None,
    sequences: bool = False,
    doubles: Mapping[str, Callable[..., Any]] | None = None,
    gradient: bool = True,
) -> Boundary:
    """A function of logits (and tokens, for log-probs); ``call`` passes them on in the form that it takes."""
    passed: dict[str, Codec] = {"logits": Column("logits")}
    if quantity == "logprob":
        passed["tokens"] = Column("token", AfterPrompt(0) if sequences else Padded())
    ordered = list(passed.values())
    given: dict[str, Codec] = {str(n): codec for n, codec in enumerate(ordered)}
    if call is not None:
        given = {"0": Constant(Function(path))} | {str(n + 1): codec for n, codec in enumerate(ordered)}
    step = Step(
        call=call or path,
        name="made",
        arguments={**given, **(arguments or {})},
        optional=frozenset(arguments or {}),
        doubles=doubles or {},
        produced_by={"1" if call else "0": produced_by},
    )
    said = claims(cite, output_algorithms={quantity: FORMULAS[quantity]})
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        reads=frozenset({"logits", "token"} if quantity == "logprob" else {"logits"}),
        outputs={quantity: Output("B T", _UNITS[quantity], quantity, at=Use("made"), form=Padded())},
        settings={setting: {}},
        claims=said | claims(cite, gradient="own") if gradient else said,
        reach=reach,
    )
