"""Build the boundary of a user's function (``module:name`` and its stage) from its parameter names."""

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
from rl_sentinel.adapters.kit.layout_trial import choose_binding, leaves
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
    """The output of a stage, and the ``word`` that names it in a dict that the function returns."""

    stage: Stage
    word: str
    output: Output


#: Values of ``--stage``.
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

#: Stages whose output has a single definition.
DEFINED = ("logprob", "entropy")

#: Hint for a stage that is not a single function.
_ADAPTED = "metrics, batches, configurations and steps are audited by an adapter (CONTRIBUTING.md, Add a framework)"

#: Exceptions by which a function refuses its input: laws judge them, so their type is kept.
_REFUSALS = (ValueError, AssertionError, NotImplementedError, ArithmeticError)


#: The usual floating-point types of signals; a function may refuse others.
_USUAL = frozenset({torch.float32})


def stage_claims(stage: str, claims: tuple[str, ...], algorithm: str = "") -> Claims:
    """The claims that a user states about a function of this stage, and those that its algorithm implies.

    Raises:
        SentinelError: if the stage is unknown, or a claim does not belong to it.
    """
    if stage not in STAGES:
        hint = _ADAPTED if stage in get_args(Stage) else "choose what your function computes"
        message = f"--stage is {stage!r}, expected one of {', '.join(STAGES)}: {hint}"
        raise SentinelError(message)
    return claims_from_options(STAGES[stage].stage, algorithm, claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a user states about a function: stage, claims, bindings of parameters, and numbers of its formula."""

    stage: str
    claims: Claims = field(default_factory=Claims)
    bind: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Scalar] = field(default_factory=dict)


def describe(target: Target, path: str, statement: Statement) -> Boundary | Unbound:
    """Build the boundary of a user's function, for the command line and for ``rl_sentinel.check``.

    Axes that are not stated are found by calls on a small batch (``kit.layout_trial``) and reported in ``notes``.

    Args:
        target: where the function is looked up.
        path: dotted path of the function.
        statement: what the user states about it.
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
    build = partial(_build, path, kind, statement, settings)
    boundary, notes = choose_binding(target, build, arguments)
    return _without_unknown_numbers(replace(boundary, notes=notes), name)


def _build(
    path: str, kind: _Kind, statement: Statement, settings: Mapping[str, Scalar], codecs: Mapping[str, Codec]
) -> Boundary:
    """The boundary with these codecs for its parameters."""
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
        steps=(Step(call=path, name="result", arguments=codecs, explain=partial(_explain, codecs)),),
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
    claimed = stage_claims(stage, claims, bound.get("algorithm", ""))
    module, _, name = path.partition(":")
    statement = Statement(stage=stage, claims=claimed, bind=bound.get("bind", {}), numbers=bound.get("numbers", {}))
    yield describe(target, f"{module}.{name}", statement)


def _output(kind: _Kind, claimed: Claims) -> Output:
    """The output of a stage, with the kind of KL and the scope of a decision that the claims state."""
    if kind.stage == "kl" and claimed.algorithm:
        return replace(kind.output, quantity=f"kl.{claimed.algorithm.value}")
    if kind.stage == "correct" and claimed.scope:
        return replace(kind.output, scope=claimed.scope.value)
    return kind.output


def _without_unknown_numbers(boundary: Boundary, name: str) -> Boundary:
    """Drop the claimed algorithm of a loss, with a note, if its formula needs a number that is unknown."""
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
        claimed = replace(boundary.claims, algorithm=None)
        return replace(boundary, claims=claimed, notes=(*boundary.notes, note))
    return boundary


def _explain(codecs: Mapping[str, Codec], error: Exception, passed: Mapping[str, Any]) -> Exception:
    """Add the passed arguments to the exception of a call; a refusal with a message keeps its type."""
    if isinstance(error, NotApplicable):
        return error
    words, arguments = " ".join(str(error).split()), describe_arguments(codecs, passed)
    if (type(error) in _REFUSALS or isinstance(error, ArithmeticError)) and words:
        return type(error)(f"{words}; passed {arguments}")
    if isinstance(error, _REFUSALS):
        return error
    if isinstance(error, TypeError | RuntimeError) and (other := _unusual_types(passed)):
        return NotApplicable(f"the function refuses {other}: {type(error).__name__}: {words}")
    return CallFailed(f"{type(error).__name__}: {words}; passed {arguments}")


def _unusual_types(passed: Mapping[str, Any]) -> str:
    """The unusual floating-point types among the passed tensors, as text."""
    floating = {x.dtype for x in passed.values() if isinstance(x, Tensor) and x.is_floating_point()}
    return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in floating - _USUAL))


FRAMEWORK = Framework(name="own", package="", boundaries=_boundaries)
