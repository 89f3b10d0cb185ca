"""A function of the user's own: ``module:name`` with its stage, bound by the names of its parameters."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.kit.numbers import numbers
from rl_sentinel.adapters.kit.user_arguments import arguments_by_name, describe_arguments
from rl_sentinel.adapters.kit.user_results import CallFailed, NamedOutput
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.user_claims import stated
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import NotApplicable, SentinelError, Unbindable
from rl_sentinel.search.claimed_formulas import known_output, references
from rl_sentinel.search.filled_batch import filled


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a stage computes: the word by which a result names it, and the output."""

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

#: What to do for a stage that is not one function.
_ADAPTED = "metrics, batches, configurations and steps are audited by an adapter (CONTRIBUTING.md, Add a framework)"

#: Refusals in words: laws judge them, so their type stays.
_REFUSALS = (ValueError, AssertionError, NotImplementedError)


#: What signals are as a rule; a function may refuse others.
_USUAL = frozenset({torch.float32})


def checked(stage: str, claims: tuple[str, ...]) -> Claims:
    """The claims that a user states of a function of this stage.

    Raises:
        SentinelError: if the stage is unknown, or a claim does not belong to it.
    """
    if stage not in STAGES:
        way = _ADAPTED if stage in get_args(Stage) else "what your function computes"
        message = f"--stage is {stage!r}, expected one of {', '.join(STAGES)}: {way}"
        raise SentinelError(message)
    return stated(claims, STAGES[stage].stage)


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    path, stage = os.environ["RL_SENTINEL_FUNCTION"], os.environ["RL_SENTINEL_STAGE"]
    claimed = checked(stage, tuple(os.environ.get("RL_SENTINEL_CLAIMS", "").splitlines()))
    module, _, name = path.partition(":")
    dotted, kind = f"{module}.{name}", STAGES[stage]
    try:
        function = target.find(dotted)
        if not callable(function):
            yield Unbound(dotted, kind.stage, f"{dotted} is of type {type(function).__name__}, expected a function")
            return
        settings, passed = numbers(function, kind.stage)
        arguments = arguments_by_name(function, passed)
    except Unbindable as why:
        yield Unbound(dotted, kind.stage, str(why))
        return
    per_token = kind.output.axes == "B T"
    form = NamedOutput(kind.word, per_token, decision=stage == "keep")
    boundary = Boundary(
        path=dotted,
        stage=kind.stage,
        steps=(Step(call=dotted, name="result", arguments=arguments, explain=partial(_explained, arguments)),),
        outputs={kind.output.quantity: replace(_output(kind, claimed), at=Use("result"), form=form)},
        settings={"default": settings},
        claims=claimed,
    )
    _check_numbers(boundary, name)
    yield boundary


def _output(kind: _Kind, claimed: Claims) -> Output:
    """The output with its claims: which kind of KL, how far a decision reaches."""
    if kind.stage == "kl" and claimed.algorithm:
        return replace(kind.output, quantity=f"kl.{claimed.algorithm.value}")
    if kind.stage == "correct" and claimed.scope:
        return replace(kind.output, scope=claimed.scope.value)
    return kind.output


def _check_numbers(boundary: Boundary, name: str) -> None:
    """Require the numbers that the formula of a claimed loss has."""
    if "loss" not in boundary.outputs or not known_output(boundary, "loss"):
        return
    try:
        references(boundary, "loss", filled([[1]], reward=[1], group=[0]), boundary.settings["default"])
    except KeyError as missing:
        message = (
            f"--claim algorithm={value_of(boundary.claims.algorithm)} needs the number {missing}, of which {name} "
            f"has no parameter: give it one with a default (docs/own-functions.md lists the names)"
        )
        raise SentinelError(message) from missing


def _explained(codecs: Mapping[str, Codec], error: Exception, passed: Mapping[str, Any]) -> Exception:
    """The exception of a call with what was passed; a refusal in words stays one."""
    if isinstance(error, NotApplicable | ArithmeticError):
        return error
    words, arguments = " ".join(str(error).split()), describe_arguments(codecs, passed)
    if type(error) in _REFUSALS and words:
        return type(error)(f"{words}; passed {arguments}")
    if isinstance(error, _REFUSALS):
        return error
    if isinstance(error, TypeError | RuntimeError) and (other := _unusual_types(passed)):
        return NotApplicable(f"it refuses {other}: {type(error).__name__}: {words}")
    return CallFailed(f"{type(error).__name__}: {words}; passed {arguments}")


def _unusual_types(passed: Mapping[str, Any]) -> str:
    """The floating types of what was passed, where they are not the usual ones."""
    floating = {x.dtype for x in passed.values() if isinstance(x, Tensor) and x.is_floating_point()}
    return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in floating - _USUAL))


FRAMEWORK = Framework(name="own", package="", boundaries=_boundaries)
