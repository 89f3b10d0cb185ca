"""Bind a user's function (``module:name`` with its stage) by the names of its parameters."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.kit.argument_messages import describe_arguments, unknown_message
from rl_sentinel.adapters.kit.forms import AfterPrompt, Packed, Ragged
from rl_sentinel.adapters.kit.layout_trial import leaves, tried
from rl_sentinel.adapters.kit.logit_kernels import FORMULAS
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.user_arguments import arguments_of
from rl_sentinel.adapters.kit.user_layouts import (
    BY_POSITION,
    Domains,
    PerResponse,
    equal_groups,
    last_token_trains,
    one_advantage_per_row,
    whole_responses,
)
from rl_sentinel.adapters.kit.user_results import CallFailed, NamedOutput
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.user_claims import claims_from_options
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Scalar
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.claims import claims as said
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
    "logprob": _Kind("batch", "logprob", Output("B T", "nats", "logprob")),
    "entropy": _Kind("batch", "entropy", Output("B T", "nats", "entropy")),
}

#: Stages whose name says what is computed.
DEFINED = ("logprob", "entropy")

#: What to do for a stage that is not one function.
_ADAPTED = "metrics, batches, configurations and steps are audited by an adapter (CONTRIBUTING.md, Add a framework)"

#: Refusals in words: laws judge them, so their type stays.
_REFUSALS = (ValueError, AssertionError, NotImplementedError, ArithmeticError)


#: What signals are as a rule; a function may refuse others.
_USUAL = frozenset({torch.float32})


def checked(stage: str, claims: tuple[str, ...], algorithm: str = "") -> Claims:
    """The claims that a user states of a function of this stage, and those that its algorithm implies.

    Raises:
        SentinelError: if the stage is unknown, or a claim does not belong to it.
    """
    if stage not in STAGES:
        way = _ADAPTED if stage in get_args(Stage) else "what your function computes"
        message = f"--stage is {stage!r}, expected one of {', '.join(STAGES)}: {way}"
        raise SentinelError(message)
    return claims_from_options(STAGES[stage].stage, algorithm, claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a user says of a function: its stage, claims, bindings of its parameters, and numbers of its formula."""

    stage: str
    claims: Claims = field(default_factory=Claims)
    bind: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Scalar] = field(default_factory=dict)


def describe(target: Target, path: str, statement: Statement) -> Boundary | Unbound:
    """The boundary of a user's function, the same for the command line and for ``rl_sentinel.check``.

    Axes that nothing states are tried on a small batch (``kit.layout_trial``); what was inferred is in ``notes``.

    Args:
        target: finds the function at ``path``.
        path: dotted path of the function.
        statement: what the user says of it.

    Raises:
        SentinelError: if a claimed formula needs a number that the function does not have.
    """
    kind = STAGES[statement.stage]
    try:
        function = target.find(path)
        if not callable(function):
            return Unbound(path, kind.stage, f"{path} is of type {type(function).__name__}, expected a function")
        arguments = arguments_of(function, kind.stage, statement.bind)
    except Unbindable as why:
        return Unbound(path, kind.stage, str(why))
    name = path.rpartition(".")[2]
    if arguments.unknown:
        return Unbound(path, kind.stage, unknown_message(name, arguments.unknown))
    settings = {**arguments.numbers, **statement.numbers}
    build = partial(_built, path, kind, statement, settings)
    boundary, notes = tried(target, build, arguments)
    return _with_numbers(replace(boundary, notes=notes), name)


def _built(
    path: str, kind: _Kind, statement: Statement, settings: Mapping[str, Scalar], codecs: Mapping[str, Codec]
) -> Boundary:
    """The boundary with these codecs."""
    flat = list(leaves(codecs.values()))
    grouped = any("group" in c.shapes for c in flat)
    unpadded = any(isinstance(getattr(c, "form", None), Packed | Ragged) for c in flat)
    masked = any("mask" in c.columns for c in flat)
    over_time = value_of(statement.claims.credit) == "temporal" and any(isinstance(c, TokenRewards) for c in flat)
    domains = [
        *([last_token_trains] if over_time else []),
        *([whole_responses] if unpadded and not masked else []),
        *([equal_groups] if grouped else []),
        *([one_advantage_per_row] if any(isinstance(c, PerResponse) and c.name == "advantage" for c in flat) else []),
    ]
    form = NamedOutput(
        kind.word,
        kind.output.axes == "B T",
        decision=statement.stage == "keep",
        packed=any(isinstance(getattr(c, "form", None), Packed) for c in flat),
        grouped=grouped,
        sequences=any(isinstance(getattr(c, "form", None), AfterPrompt) for c in flat),
    )
    claimed = statement.claims
    if statement.stage in DEFINED:
        claimed |= said(f"stage {statement.stage}", output_algorithms={kind.word: FORMULAS[kind.word]})
    return Boundary(
        path=path,
        stage=kind.stage,
        steps=(Step(call=path, name="result", arguments=codecs, explain=partial(_explained, codecs)),),
        outputs={kind.output.quantity: replace(_output(kind, claimed), at=Use("result"), form=form)},
        settings={"default": settings},
        claims=claimed,
        requires=BY_POSITION if grouped else (),
        domain=Domains(tuple(domains)) if domains else None,
        own=True,
    )


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    path, stage = os.environ["RL_SENTINEL_FUNCTION"], os.environ["RL_SENTINEL_STAGE"]
    bound = json.loads(os.environ.get("RL_SENTINEL_BIND") or "{}")
    claims = tuple(os.environ.get("RL_SENTINEL_CLAIMS", "").splitlines())
    claimed = checked(stage, claims, bound.get("algorithm", ""))
    module, _, name = path.partition(":")
    statement = Statement(stage=stage, claims=claimed, bind=bound.get("bind", {}), numbers=bound.get("numbers", {}))
    yield describe(target, f"{module}.{name}", statement)


def _output(kind: _Kind, claimed: Claims) -> Output:
    """The output with its claims: which kind of KL, how far a decision reaches."""
    if kind.stage == "kl" and claimed.algorithm:
        return replace(kind.output, quantity=f"kl.{claimed.algorithm.value}")
    if kind.stage == "correct" and claimed.scope:
        return replace(kind.output, scope=claimed.scope.value)
    return kind.output


def _with_numbers(boundary: Boundary, name: str) -> Boundary:
    """The boundary without the algorithm of a loss whose formula needs a number that is unknown, which is noted."""
    if "loss" not in boundary.outputs or not known_output(boundary, "loss"):
        return boundary
    try:
        references(boundary, "loss", filled([[1]], reward=[1], group=[0]), boundary.settings["default"])
    except KeyError as missing:
        algorithm = value_of(boundary.claims.algorithm)
        note = (
            f"not compared with the formula of {algorithm}, which needs the number {missing.args[0]}: give {name} a "
            f'parameter for it, or state it with numbers={{"{missing.args[0]}": ...}}'
        )
        left = replace(boundary.claims, algorithm=None)
        return replace(boundary, claims=left, notes=(*boundary.notes, note))
    return boundary


def _explained(codecs: Mapping[str, Codec], error: Exception, passed: Mapping[str, Any]) -> Exception:
    """The exception of a call with what was passed; a refusal in words stays one."""
    if isinstance(error, NotApplicable):
        return error
    words, arguments = " ".join(str(error).split()), describe_arguments(codecs, passed)
    if (type(error) in _REFUSALS or isinstance(error, ArithmeticError)) and words:
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
