"""A function of the user's own: ``module:name`` with its stage, bound by the names of its parameters."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import NotApplicable, SentinelError, Unbindable
from rl_sentinel.frameworks.arguments import arguments, described, reads
from rl_sentinel.frameworks.framework import Framework
from rl_sentinel.frameworks.target import Target

_STAGES: Mapping[str, tuple[Stage, Output]] = {
    "advantage": ("advantage", Output("B T", "reward", "advantage")),
    "policy-loss": ("policy-loss", Output("", "", "loss")),
    "value-loss": ("value-loss", Output("", "", "loss")),
    "kl": ("kl", Output("B T", "nats", "kl")),
}

#: Refusals in words; they stay what they are, since laws judge them.
_REFUSALS = (ValueError, AssertionError, NotImplementedError)


class CallFailed(Exception):  # noqa: N818 - becomes the pair's errored reason
    """The function failed on what it was passed, or its answer has no output that can be told."""


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    path, stage = os.environ["RL_SENTINEL_FUNCTION"], os.environ["RL_SENTINEL_STAGE"]
    if stage not in _STAGES:
        message = f"--stage is {stage!r}, expected one of {', '.join(_STAGES)}"
        raise SentinelError(message)
    module, _, name = path.partition(":")
    dotted = f"{module}.{name}"
    kind, output = _STAGES[stage]
    try:
        function = target.find(dotted)
        columns = reads(function)
    except Unbindable as why:
        yield Unbound(dotted, kind, str(why))
        return
    key = output.quantity or "loss"

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        first = _output(_answer(target, dotted, function, batch), key)
        if isinstance(first, Tensor) and first.dim() == 1 and output.axes == "B T":
            first = torch.where(batch.mask, first.unsqueeze(1), 0.0)
        return {key: first}

    yield Boundary(path=dotted, stage=kind, call=call, reads=columns, outputs={key: output})


def _answer(target: Target, path: str, function: Callable[..., Any], batch: Batch) -> Any:  # noqa: ANN401
    given = arguments(function, batch)
    passed = described(given)
    try:
        return target.call(path, **given)
    except (NotApplicable, ArithmeticError):
        raise
    except Exception as error:
        if type(error) in _REFUSALS and str(error).strip():
            message = f"{error}; passed {passed}"
            raise type(error)(message) from error
        if isinstance(error, _REFUSALS):
            raise
        message = f"{type(error).__name__}: {error}; passed {passed}"
        raise CallFailed(message) from error


def _output(result: Any, key: str) -> Any:  # noqa: ANN401 - whatever the function gives
    """The output in an answer: itself, the first of a tuple, or a dict's entry of that name."""
    if isinstance(result, tuple):
        return result[0]
    if not isinstance(result, Mapping):
        return result
    exact = [n for n in result if str(n).lower() in (key, f"{key}s")]
    named = exact or [n for n in result if key in str(n).lower()]
    if len(named) != 1:
        message = f"the answer is a dict of {', '.join(map(str, result))}; expected one entry named {key}"
        raise CallFailed(message)
    return result[named[0]]


FRAMEWORK = Framework(name="own", package="", boundaries=_boundaries)
