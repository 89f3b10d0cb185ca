"""Build the boundary of a user's function (``module:name`` and its stage) from its parameter names."""

import json
import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.installation import Installation
from rl_sentinel.adapters.kit.argument_messages import describe_arguments, lookup_hint, unknown_message
from rl_sentinel.adapters.kit.codecs import CumulativeLengths, Lengths, ResponseMask
from rl_sentinel.adapters.kit.forms import AfterPrompt, Packed, Padded, Ragged
from rl_sentinel.adapters.kit.layout_fit import layout_of_formula
from rl_sentinel.adapters.kit.layout_trial import choose_binding, leaves
from rl_sentinel.adapters.kit.logit_kernels import FORMULAS
from rl_sentinel.adapters.kit.number_fit import with_fitted_numbers
from rl_sentinel.adapters.kit.numbers import numbers_by_name
from rl_sentinel.adapters.kit.numbers_in_code import literal_bounds, literals, named_numbers, set_accumulation_to_one
from rl_sentinel.adapters.kit.parameter_codecs import Arguments
from rl_sentinel.adapters.kit.prompt_groups import grouping
from rl_sentinel.adapters.kit.refused_layouts import refuse_one_per_response
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.user_arguments import arguments_of
from rl_sentinel.adapters.kit.user_layouts import (
    Domains,
    Grouped,
    GroupedTokens,
    PerResponse,
    full_width,
    last_token_trains,
    one_advantage_per_row,
    whole_responses,
)
from rl_sentinel.adapters.kit.user_results import CallFailed, NamedOutput
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.kit.weighted_kl import with_kl_of_gradient
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.user_claims import claims_from_options
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Scalar
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.claims import claims as said
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import NotApplicable, SentinelError, Unbindable
from rl_sentinel.formulas.policy_losses import OF_RESPONSES


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


#: Stages whose functions, without a parameter that tells trained tokens from others, are passed full rows.
_WITHOUT_MASK = frozenset({"advantage", "policy-loss", "value-loss", "aggregate"})

#: Note on such a loss.
_UNMASKED = "no parameter says which tokens are trained, so every token of every row was"

#: Folders of code that is not the user's.
_PACKAGES = frozenset({"site-packages", "dist-packages", "rl_sentinel"})

#: The usual floating-point types of signals; a function may refuse others.
_USUAL = frozenset({torch.float32})


def stage_claims(stage: str, claims: tuple[str, ...], algorithm: str = "") -> Claims:
    """The claims that a user states about a function of this stage, and those that its algorithm implies.

    Raises:
        SentinelError: if the stage is unknown, or a claim does not belong to it.
    """
    if stage not in STAGES:
        hint = _ADAPTED if stage in get_args(Stage) else "choose what your function computes"
        given = f"is {stage!r}" if stage else "is missing"
        message = f"--stage {given}, expected one of {', '.join(STAGES)}: {hint}"
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
        refuse_one_per_response(arguments.codecs, kind.stage, statement.claims)
    except Unbindable as why:
        return Unbound(path, kind.stage, f"{why}{lookup_hint(target, path, why)}")
    name = path.rpartition(".")[2]
    if arguments.unknown:
        unknown = {path: path in arguments.attributes for path in arguments.unknown}
        return Unbound(path, kind.stage, unknown_message(name, unknown, leaves(arguments.codecs.values())))
    passed = {name: codec.value for name, codec in arguments.codecs.items() if isinstance(codec, Constant)}
    accumulation = set_accumulation_to_one(function, passed)
    outside = named_numbers(function, passed)
    settings = {**numbers_by_name(outside, kind.stage), **arguments.numbers, **statement.numbers}
    build = partial(_build, path, kind, statement, settings, _group_size(outside, arguments))
    boundary, notes = choose_binding(target, build, arguments)
    whole = [f"{name} is set to 1 in the check: one step holds the whole batch" for name in accumulation]
    boundary = replace(boundary, notes=(*boundary.notes, *notes, *whole, *_not_compared(boundary)))
    chosen = with_fitted_numbers(target, boundary, literals(function), literal_bounds(function))
    chosen = with_kl_of_gradient(target, chosen)
    return layout_of_formula(target, build, arguments, chosen, literals(function))


def _not_compared(boundary: Boundary) -> tuple[str, ...]:
    """What no law compares with a formula although an algorithm is claimed."""
    penalized = boundary.stage == "advantage" and boundary.claims.algorithm and "ref_logprob" in boundary.reads
    note = "the size of the KL in its rewards is not checked: check the function of the KL at stage kl"
    return (note,) if penalized else ()


def _group_size(outside: Mapping[str, float], arguments: Arguments) -> int:
    """The number of responses per prompt that a function of rewards without labels holds itself; 0 if it has none."""
    flat = list(leaves(arguments.codecs.values()))
    if any("group" in c.columns | c.shapes for c in flat) or not any("reward" in c.columns for c in flat):
        return 0
    return next((int(x) for name, x in outside.items() if role_of(name) == "group_size" and x > 1), 0)


def _build(  # noqa: PLR0913 - the parts of a boundary
    path: str,
    kind: _Kind,
    statement: Statement,
    settings: Mapping[str, Scalar],
    group_size: int,
    codecs: Mapping[str, Codec],
) -> Boundary:
    """The boundary with these codecs for its parameters."""
    flat = list(leaves(codecs.values()))
    forms = [c.form for c in flat if hasattr(c, "form")]
    grouped = any("group" in c.shapes for c in flat) or any(isinstance(f, Grouped) for f in forms)
    group_domain, requires = grouping(flat, group_size)
    by_response = kind.stage == "policy-loss" and value_of(statement.claims.algorithm) in OF_RESPONSES
    by_response = by_response or any(isinstance(c, PerResponse) and c.name == "advantage" for c in flat)
    unpadded = any(isinstance(f, Packed | Ragged) for f in forms)
    masked = any("mask" in c.columns for c in flat)
    padded = (
        any(isinstance(getattr(f, "inner", f), Padded | GroupedTokens) for f in forms) and kind.stage in _WITHOUT_MASK
    )
    measured = masked or any(isinstance(c, CumulativeLengths | Lengths | ResponseMask) for c in flat)
    # A function in ``bind`` may put the outcome on the last token as well.
    per_token = any(isinstance(c, TokenRewards) or {"reward", "token_reward"} <= c.columns for c in flat)
    domains = [
        *([last_token_trains] if per_token else []),
        *([whole_responses] if unpadded and not masked else []),
        *([full_width] if padded and not measured else []),
        *group_domain,
        *([one_advantage_per_row] if by_response else []),
    ]
    form = NamedOutput(
        kind.word,
        kind.output.axes == "B T",
        decision=statement.stage == "keep",
        packed=any(isinstance(x, CumulativeLengths | Lengths | Packed) for x in (*flat, *forms)),
        grouped=grouped,
        sequences=any(isinstance(f, AfterPrompt) for f in forms),
    )
    claimed = statement.claims
    if statement.stage in DEFINED:
        claimed |= said(f"stage {statement.stage}", output_algorithms={kind.word: FORMULAS[kind.word]})
    kl = claimed.kl if kind.stage == "reward" else None
    if kl is not None:
        claimed |= said(kl.cite, algorithm=f"less {kl.value}")
    boundary = Boundary(
        path=path,
        stage=kind.stage,
        steps=(Step(call=path, name="result", arguments=codecs, explain=partial(_explain, codecs)),),
        outputs={kind.output.quantity: replace(_output(kind, claimed), at=Use("result"), form=form)},
        settings={"default": settings},
        claims=claimed,
        notes=(_UNMASKED,) if padded and not measured and "loss" in kind.word else (),
        requires=requires,
        domain=Domains(tuple(domains)) if domains else None,
        own=True,
    )
    return replace(boundary, reads=boundary.reads | {"group"}) if group_size else boundary


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
    return CallFailed(f"it raised {type(error).__name__}: {words}{_line_of(error)}; passed {arguments}")


def _line_of(error: Exception) -> str:
    """`` at FILE:LINE`` of the last line outside of packages, where the function raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _PACKAGES & set(Path(f.filename).parts)]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def _unusual_types(passed: Mapping[str, Any]) -> str:
    """The unusual floating-point types among the passed tensors, as text."""
    floating = {x.dtype for x in passed.values() if isinstance(x, Tensor) and x.is_floating_point()}
    return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in floating - _USUAL))


def _installation(_version: str) -> Installation:
    return Installation(note="and what your code imports; run this in your project's folder", folders=("", "src"))


FRAMEWORK = Framework(name="own", package="", boundaries=_boundaries, installation=_installation)
