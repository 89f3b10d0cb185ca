"""A function of the user's own: ``module:name`` with its stage, bound by the names of its parameters."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor

from rl_sentinel.adapters.arguments import arguments, described, reads
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.numbers import numbers
from rl_sentinel.adapters.target import Target
from rl_sentinel.cases.claims import stated
from rl_sentinel.cases.filling import filled
from rl_sentinel.cases.references import known_output, references
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.errors import NotApplicable, SentinelError, Unbindable


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a stage gives: the word by which an answer names it, and what it is."""

    stage: Stage
    word: str
    output: Output


#: What ``--stage`` may be.
STAGES: Mapping[str, _Kind] = {
    "advantage": _Kind("advantage", "advantage", Output("B T", "reward", "advantage")),
    "policy-loss": _Kind("policy-loss", "loss", Output("", "", "loss")),
    "value-loss": _Kind("value-loss", "loss", Output("", "", "loss")),
    "kl": _Kind("kl", "kl", Output("B T", "nats", "kl")),
    "aggregate": _Kind("aggregate", "loss", Output("", "", "loss")),
    "reward": _Kind("reward", "reward", Output("B T", "reward", "token_reward")),
    "normalise": _Kind("normalise", "reward", Output("B T", "reward", "reward")),
    "weight": _Kind("correct", "weight", Output("B T", "ratio", "weight")),
    "keep": _Kind("correct", "mask", Output("B T", "", "keep")),
}

#: The way out of a stage that no lone function has.
_ADAPTED = "metrics, batches, configurations and steps are audited by an adapter (CONTRIBUTING.md, Add a framework)"

#: Refusals in words; they stay what they are, since laws judge them.
_REFUSALS = (ValueError, AssertionError, NotImplementedError)


#: What to hand back instead of an array or a list.
_WAYS = "hand back torch.as_tensor(...) of it, or the tensor itself"

#: What signals are as a rule; a function may refuse others, which is its own affair.
_USUAL = frozenset({torch.float32})


class CallFailed(Exception):  # noqa: N818 - becomes the pair's errored reason
    """The function failed on what it was passed, or its answer has no output that can be told."""


def checked(stage: str, claims: tuple[str, ...]) -> Claims:
    """The claims that are stated of a function of this stage.

    Raises:
        SentinelError: if the stage is none, or a claim says nothing there.
    """
    if stage not in STAGES:
        way = _ADAPTED if stage in get_args(Stage) else "what your function computes"
        message = f"--stage is {stage!r}, expected one of {', '.join(STAGES)}: {way}"
        raise SentinelError(message)
    return stated(claims, STAGES[stage].stage)


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    path, stage = os.environ["RL_SENTINEL_FUNCTION"], os.environ["RL_SENTINEL_STAGE"]
    said = checked(stage, tuple(os.environ.get("RL_SENTINEL_CLAIMS", "").splitlines()))
    module, _, name = path.partition(":")
    dotted, kind = f"{module}.{name}", STAGES[stage]
    try:
        function = target.find(dotted)
        if not callable(function):
            yield Unbound(dotted, kind.stage, f"{dotted} is of type {type(function).__name__}, expected a function")
            return
        settings, passed = numbers(function, kind.stage)
        columns = reads(function, passed)
    except Unbindable as why:
        yield Unbound(dotted, kind.stage, str(why))
        return

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        first = _output(_answer(target, dotted, function, batch, passed), kind.word)
        if not isinstance(first, Tensor):
            message = f"its {kind.word} is of type {type(first).__name__}, expected a tensor: {_WAYS}"
            raise CallFailed(message)
        if first.dim() == 1 and kind.output.axes == "B T":
            first = torch.where(batch.mask, first.unsqueeze(1), 0.0)
        if stage == "keep" and first.shape == batch.mask.shape:
            first = ((first > 0) | ~batch.mask).float()
        return {kind.output.quantity: first}

    boundary = Boundary(
        path=dotted,
        stage=kind.stage,
        call=call,
        reads=columns,
        outputs={kind.output.quantity: _said(kind, said)},
        settings={"default": settings},
        claims=said,
    )
    _check_numbers(boundary, name)
    yield boundary


def _said(kind: _Kind, said: Claims) -> Output:
    """The output with what is claimed of it: which kind of KL, how far a decision reaches."""
    if kind.stage == "kl" and said.algorithm:
        return replace(kind.output, quantity=f"kl.{said.algorithm.value}")
    if kind.stage == "correct" and said.scope:
        return replace(kind.output, scope=said.scope.value)
    return kind.output


def _check_numbers(boundary: Boundary, name: str) -> None:
    """See that the formula of a claimed loss has its numbers."""
    if "loss" not in boundary.outputs or not known_output(boundary, "loss"):
        return
    try:
        references(boundary, "loss", filled([[1]], reward=[1], group=[0]), boundary.settings["default"])
    except KeyError as lacking:
        message = (
            f"--claim algorithm={value_of(boundary.claims.algorithm)} needs the number {lacking}, of which {name} "
            f"has no parameter: give it one with a default (docs/own-functions.md lists the names)"
        )
        raise SentinelError(message) from lacking


def _answer(
    target: Target, path: str, function: Callable[..., Any], batch: Batch, numbers_passed: Mapping[str, float]
) -> Any:  # noqa: ANN401 - whatever the function gives
    given = arguments(function, batch, numbers_passed)
    passed = described(given)
    try:
        return target.call(path, **given)
    except (NotApplicable, ArithmeticError):
        raise
    except Exception as error:
        words = " ".join(str(error).split())
        if type(error) in _REFUSALS and words:
            message = f"{words}; passed {passed}"
            raise type(error)(message) from error
        if isinstance(error, _REFUSALS):
            raise
        if isinstance(error, TypeError | RuntimeError) and (other := _unusual(given)):
            message = f"it refuses {other}: {type(error).__name__}: {words}"
            raise NotApplicable(message) from error
        message = f"{type(error).__name__}: {words}; passed {passed}"
        raise CallFailed(message) from error


def _unusual(given: Mapping[str, Any]) -> str:
    """The floating type of what was passed, where it is another than usual."""
    floating = {x.dtype for x in given.values() if isinstance(x, Tensor) and x.is_floating_point()}
    return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in floating - _USUAL))


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
