"""Boundaries of functions that compute log-probs, entropy or other per-token numbers from logits."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import AfterPrompt, Padded
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.core.boundary import Boundary, Output, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Per-token output -> the name of its formula.
FORMULAS: Mapping[str, str] = {
    "logprob": "log-prob of the token",
    "entropy": "entropy of the logits",
    "pi_squared": "sum of squared probabilities",
}

#: Per-token output -> its unit.
UNITS: Mapping[str, str] = {"logprob": "nats", "entropy": "nats", "pi_squared": ""}


class OneRank:
    """Megatron's parallel state with a single rank, for functions with a vocabulary-parallel implementation."""

    @staticmethod
    def get_tensor_model_parallel_group() -> Any:  # noqa: ANN401 - a process group
        """A process group of this process alone."""
        return one_process_group()


def no_compile(*_functions: object, **_options: object) -> Callable[[Any], Any]:
    """A replacement for ``torch.compile`` that returns the function unchanged."""
    return lambda function: function


class CustomLayer(torch.autograd.Function):
    """An identity layer that, like custom layers of models, flattens the tokens and returns a view of its result.

    If another custom layer gets such a view, the result of that layer does not require a gradient.
    """

    @staticmethod
    def forward(_ctx: Any, states: Tensor) -> Tensor:  # noqa: ANN401 - the context of torch
        """``[..., H]`` states, unchanged."""
        return (states.reshape(-1, states.shape[-1]) * 1).view(states.shape)

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:  # noqa: ANN401 - as torch's
        """The gradient, unchanged."""
        return gradients[0]


def with_flat_logits(compute: Callable[..., Tensor], logits: Tensor, **options: Any) -> Tensor:  # noqa: ANN401 - plain values
    """Call a function of ``[N, V]`` logits with the flattened logits of all rows."""
    return compute(logits.reshape(-1, logits.shape[-1]), **options).view(logits.shape[:-1])


def with_full_sequence(compute: Callable[..., Tensor], logits: Tensor, tokens: Tensor, **options: Any) -> Tensor:  # noqa: ANN401 - plain values
    """Call a function that takes full sequences and shifts them itself, with a one-token prompt.

    The logits of the last position are 0: they predict a token after the end of the sequence.
    """
    last = torch.zeros_like(logits[:, :1])
    return compute(torch.cat([logits, last], dim=1), tokens, **options)


def gradient_at_token(compute: Callable[..., Tensor], logits: Tensor, tokens: Tensor, **options: Any) -> Tensor:  # noqa: ANN401 - plain values
    """The gradient of the sum of the outputs with respect to the logit of each sampled token; 0 without a gradient."""
    leaf = (logits.detach() * 1).requires_grad_()
    torch.autograd.backward([compute(leaf * 1, **options).sum()])
    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return gradient.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def bind_backward(  # noqa: PLR0913 - the parts of one description
    path: str,
    *,
    cite: str,
    reach: str,
    produced_by: str,
    setting: str,
    arguments: Mapping[str, Codec] | None = None,
    fakes: Mapping[str, Callable[..., Any]] | None = None,
) -> Boundary:
    """The boundary of the custom backward pass of a function of logits."""
    return one_call(
        path=path,
        stage="batch",
        call=gradient_at_token,
        name="slope",
        arguments={
            "0": Constant(Function(path)),
            "1": Column("logits"),
            "2": Column("token"),
            **(arguments or {}),
        },
        fakes=fakes or {},
        produced_by={"1": produced_by},
        outputs={"slope": Output("B T", "", "", at=Use("slope"), form=Padded())},
        settings={setting: {}},
        claims=claims(cite),
        reach=reach,
    )


def bind_logits(  # noqa: PLR0913 - the parts of one description
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
    fakes: Mapping[str, Callable[..., Any]] | None = None,
    gradient: bool = True,
) -> Boundary:
    """The boundary of a function of logits (and tokens, for log-probs); ``call`` may adapt the arguments."""
    passed: dict[str, Codec] = {"logits": Column("logits")}
    if quantity == "logprob":
        passed["tokens"] = Column("token", AfterPrompt(0) if sequences else Padded())
    ordered = [*([Constant(Function(path))] if call is not None else []), *passed.values()]
    positional: dict[str, Codec] = {str(n): codec for n, codec in enumerate(ordered)}
    definition = claims(cite, output_algorithms={quantity: FORMULAS[quantity]})
    return one_call(
        path=path,
        stage="batch",
        call=call or path,
        name="made",
        arguments={**positional, **(arguments or {})},
        optional=frozenset(arguments or {}),
        fakes=fakes or {},
        produced_by={"1" if call else "0": produced_by},
        reads=frozenset({"logits", "token"} if quantity == "logprob" else {"logits"}),
        outputs={quantity: Output("B T", UNITS[quantity], quantity, at=Use("made"), form=Padded())},
        settings={setting: {}},
        claims=definition | claims(cite, gradient="own") if gradient else definition,
        reach=reach,
    )
