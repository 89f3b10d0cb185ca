"""Explain an exception of a user's function: the line that raised it, and the passed arguments."""

import dis
import re
import traceback
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.argument_messages import describe_arguments
from rl_sentinel.adapters.kit.codecs import PromptIds
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.adapters.kit.user_results import CallFailed
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import NotApplicable

#: Exceptions by which a function refuses its input: laws judge them, so their type is kept.
_REFUSALS = (ValueError, AssertionError, NotImplementedError, ArithmeticError)

#: Words of errors of shapes.
_SHAPES = re.compile(r"broadcast|reshape|shape")

#: Folders of code that is not the user's.
_PACKAGES = frozenset({"site-packages", "dist-packages", "rl_sentinel"})

#: The usual floating-point types of signals; a function may refuse others.
_USUAL = frozenset({torch.float32})


def explain_error(codecs: Mapping[str, Codec], error: Exception, passed: Mapping[str, Any]) -> Exception:
    """The exception to report for an exception of a call.

    A refusal of the input keeps its type, so that laws can judge it, and so does :class:`NotApplicable`. Other
    exceptions become :class:`CallFailed`, or :class:`NotApplicable` if the function may refuse a floating-point type.
    The message of a :class:`CallFailed`, and of a refusal of a standard type that has a message, lists the passed
    arguments.

    Args:
        codecs: the codec of each parameter.
        error: the exception.
        passed: the argument of each parameter.
    """
    if isinstance(error, NotApplicable):
        return error
    words, arguments = " ".join(str(error).split()), describe_arguments(codecs, passed)
    hint = _hint_on_text_ids(codecs, error)
    refused = isinstance(error, _REFUSALS) and not _is_accident(error)
    if refused and words and (type(error) in _REFUSALS or isinstance(error, ArithmeticError)):
        return type(error)(f"{words}{hint}; passed {arguments}")
    if refused:
        return error
    if isinstance(error, TypeError | RuntimeError) and (other := _unusual_types(passed)):
        return NotApplicable(f"the function refuses {other}: {type(error).__name__}: {words}")
    return CallFailed(f"the function raised {type(error).__name__}: {words}{_line_of(error)}{hint}; passed {arguments}")


def _hint_on_text_ids(codecs: Mapping[str, Codec], error: Exception) -> str:
    """A hint to pass prompt ids as numbers, if the function may have failed because the ids are texts."""
    if not isinstance(error, AttributeError | TypeError | IndexError | ValueError | KeyError):
        return ""
    texts = [path for path, codec in codec_paths(codecs) if isinstance(codec, PromptIds) and codec.form == "strings"]
    return "".join(
        f'; {path} was passed as strings: bind={{"{path}": "group[B] int64"}} passes numbers' for path in texts
    )


def _is_accident(error: Exception) -> bool:
    """Whether an exception is a shape error that no ``raise`` statement raised, such as numpy's broadcast error."""
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
    """`` at FILE:LINE`` of the last line of the traceback outside of packages; empty without one."""
    frames = traceback.extract_tb(error.__traceback__)
    frames_of_user = [f for f in frames if not _PACKAGES & set(Path(f.filename).parts)]
    return f" at {Path(frames_of_user[-1].filename).name}:{frames_of_user[-1].lineno}" if frames_of_user else ""


def _unusual_types(passed: Mapping[str, Any]) -> str:
    """The unusual floating-point types of passed tensors, as text; tensors in dicts, lists and objects count, too."""
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
