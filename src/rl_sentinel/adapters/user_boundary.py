"""The boundary of a user's function: what its stage returns, the batches that suit its layouts, and its failures."""

import dis
import re
import traceback
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.argument_messages import describe_arguments
from rl_sentinel.adapters.kit.codecs import CumulativeLengths, Lengths, PromptIds, ResponseMask
from rl_sentinel.adapters.kit.forms import AfterPrompt, Packed, Padded, Ragged
from rl_sentinel.adapters.kit.layout_trial import PER_TOKEN, all_codecs
from rl_sentinel.adapters.kit.logit_kernels import FORMULAS
from rl_sentinel.adapters.kit.masked_value import MaskedValue, is_zero_off_mask, zero_off_mask
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.prompt_groups import FixedGroups, grouping
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.sequence_model import SequenceMask, uncertain
from rl_sentinel.adapters.kit.user_layouts import (
    Domains,
    FunctionCodec,
    Grouped,
    GroupedTokens,
    PromptList,
    full_width,
    last_token_trains,
    one_advantage_per_row,
    whole_responses,
)
from rl_sentinel.adapters.kit.user_results import CallFailed, NamedOutput
from rl_sentinel.adapters.kit.wrapped_forms import is_time_first, of_one_prompt
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Scalar
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.claims import claims as said
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import NotApplicable
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
    "normalize": _Kind("normalize", "reward", Output("B T", "reward", "reward")),
    "weight": _Kind("correct", "weight", Output("B T", "ratio", "weight")),
    "keep": _Kind("correct", "mask", Output("B T", "", "keep")),
    "logprob": _Kind("batch", "logprob", Output("B T", "nats", "logprob")),
    "entropy": _Kind("batch", "entropy", Output("B T", "nats", "entropy")),
}

#: Stages whose output has a single definition.
DEFINED = ("logprob", "entropy")

#: Exceptions by which a function refuses its input: laws judge them, so their type is kept.
_REFUSALS = (ValueError, AssertionError, NotImplementedError, ArithmeticError)


#: Words of errors of shapes.
_SHAPES = re.compile(r"broadcast|reshape|shape")

#: Stages whose functions, without a parameter that tells trained tokens from others, are passed full rows.
_WITHOUT_MASK = frozenset({"advantage", "policy-loss", "value-loss", "aggregate"})

#: Note on such a loss.
_UNMASKED = "no parameter says which tokens are trained, so every token of every row was"

#: Folders of code that is not the user's.
_PACKAGES = frozenset({"site-packages", "dist-packages", "rl_sentinel"})

#: The usual floating-point types of signals; a function may refuse others.
_USUAL = frozenset({torch.float32})


def user_boundary(  # noqa: PLR0913 - the parts of a boundary
    path: str,
    stage: str,
    claimed: Claims,
    settings: Mapping[str, Scalar],
    groups: FixedGroups | None,
    codecs: Mapping[str, Codec],
) -> Boundary:
    """The boundary of the function at ``path``, with these codecs for its parameters.

    Args:
        path: dotted path of the function.
        stage: a key of :data:`STAGES`.
        claimed: the claims about it.
        settings: the numbers of its formula.
        groups: the groups of a function that holds the number of responses per prompt itself.
        codecs: the codec of each parameter.
    """
    kind = STAGES[stage]
    flat = list(all_codecs(codecs.values()))
    forms = [c.form for c in flat if hasattr(c, "form")]
    grouped = any("group" in c.shapes for c in flat) or any(isinstance(f, Grouped) for f in forms)
    group_domain, requires = grouping(flat, groups)
    by_response = kind.stage == "policy-loss" and value_of(claimed.algorithm) in OF_RESPONSES
    by_response = by_response or any(isinstance(c, PerResponse) and c.name == "advantage" for c in flat)
    unpadded = any(isinstance(f, Packed | Ragged) for f in forms)
    masked = any("mask" in c.columns for c in flat)
    padded = any(isinstance(getattr(f, "inner", f), Padded | GroupedTokens) for f in forms)
    padded |= any(isinstance(c, FunctionCodec) and c.of & PER_TOKEN for c in flat) or any(c.modeled for c in flat)
    padded &= kind.stage in _WITHOUT_MASK
    measured = masked or any(isinstance(c, CumulativeLengths | Lengths | ResponseMask | SequenceMask) for c in flat)
    # A function in ``bind`` may put the outcome on the last token as well.
    per_token = any(isinstance(c, TokenRewards) or {"reward", "token_reward"} <= c.columns for c in flat)
    zeroed = any(isinstance(c, MaskedValue) for c in flat)
    requires = (*requires, is_zero_off_mask) if zeroed else requires
    domains = [
        *([last_token_trains] if per_token else []),
        *([whole_responses] if (unpadded or measured) and not masked else []),
        *([full_width] if padded and not measured else []),
        *group_domain,
        *([one_advantage_per_row] if by_response else []),
        *([zero_off_mask] if zeroed else []),
        *([uncertain] if any(c.modeled for c in flat) else []),
    ]
    form = NamedOutput(
        kind.word,
        kind.output.axes == "B T",
        decision=stage == "keep",
        packed=any(isinstance(x, CumulativeLengths | Lengths | Packed) for x in (*flat, *forms)),
        grouped=grouped,
        sequences=any(isinstance(f, AfterPrompt) for f in forms),
        time_first=kind.output.axes == "B T" and any(is_time_first(f) for f in forms),
        of_tokens=kind.stage == "kl",
        lists=unpadded or any(isinstance(f, PromptList) for f in forms),
    )
    if stage in DEFINED:
        claimed |= said(f"stage {stage}", output_algorithms={kind.word: FORMULAS[kind.word]})
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
        notes=(_UNMASKED,) if (unpadded or (padded and not measured)) and not masked and "loss" in kind.word else (),
        requires=requires,
        domain=Domains(tuple(domains)) if domains else None,
        own=True,
    )
    by_position = groups is not None or any(of_one_prompt(form) for form in forms)
    return replace(boundary, reads=boundary.reads | {"group"}) if by_position else boundary


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
    hint = _text_ids(codecs, error)
    if _is_accident(error):
        return CallFailed(f"it raised {type(error).__name__}: {words}{_line_of(error)}{hint}; passed {arguments}")
    if (type(error) in _REFUSALS or isinstance(error, ArithmeticError)) and words:
        return type(error)(f"{words}{hint}; passed {arguments}")
    if isinstance(error, _REFUSALS):
        return error
    if isinstance(error, TypeError | RuntimeError) and (other := _unusual_types(passed)):
        return NotApplicable(f"the function refuses {other}: {type(error).__name__}: {words}")
    return CallFailed(f"it raised {type(error).__name__}: {words}{_line_of(error)}{hint}; passed {arguments}")


def _text_ids(codecs: Mapping[str, Codec], error: Exception) -> str:
    """How to pass numbers as ids of prompts, where a function may have failed because they are texts."""
    if not isinstance(error, AttributeError | TypeError | IndexError | ValueError | KeyError):
        return ""
    texts = [path for path, codec in codec_paths(codecs) if isinstance(codec, PromptIds) and codec.form == "strings"]
    return "".join(f'; {path} has texts: bind={{"{path}": "group[B] int64"}} passes numbers' for path in texts)


def _is_accident(error: Exception) -> bool:
    """Whether it is an error of shapes that no ``raise`` made, as numpy's where arrays do not broadcast."""
    if type(error) is not ValueError or not _SHAPES.search(str(error)):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    steps = {step.offset: step.opname for step in dis.get_instructions(trace.tb_frame.f_code)}
    return steps.get(trace.tb_lasti) != "RAISE_VARARGS"


def _line_of(error: Exception) -> str:
    """`` at FILE:LINE`` of the last line outside of packages, where the function raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _PACKAGES & set(Path(f.filename).parts)]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def _unusual_types(passed: Mapping[str, Any]) -> str:
    """The unusual floating-point types among the passed tensors, also those in dicts, lists and objects, as text."""
    floating = {x.dtype for x in _tensors(passed) if x.is_floating_point()}
    return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in floating - _USUAL))


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)
    elif is_dataclass(value) or isinstance(value, Namespace | SimpleNamespace):
        yield from _tensors(vars(value))
