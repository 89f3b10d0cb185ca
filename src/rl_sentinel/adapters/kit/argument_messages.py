"""Messages about the arguments of a user's function: unknown parameter names, passed values."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher, get_close_matches
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor

from rl_sentinel.adapters.kit.bind_text import BINDINGS, word_of
from rl_sentinel.adapters.kit.containers import Container
from rl_sentinel.adapters.kit.numbers import NUMBERS
from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.parameter_uses import Use, is_read
from rl_sentinel.adapters.kit.parameter_words import POLICIES
from rl_sentinel.adapters.kit.roles import parameters_of, role_of, similar_names
from rl_sentinel.adapters.kit.sequence_model import PROMPT
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Absent, Unbindable
from rl_sentinel.core.phrasing import nearest, shortened

#: Similarity (0 to 1) from which an unknown name counts as a misspelt known name.
_SIMILAR = 0.8

#: Below this similarity, the nearest known name says nothing about what the parameter holds.
_UNLIKE = 0.75

#: Maximum number of words of a name that are examined.
_MOST_WORDS = 8

#: Proposals for parameters without a column: a function of the batch, or a number.
_ANYTHING, _NUMBER = "lambda batch: ...", "NUMBER"

#: Proposals for a choice: only the user knows which text or flag selects the claimed branch.
_FLAG, _TEXT = "FLAG", "TEXT"

#: Proposals that name no column, and may be repeated for several parameters.
_PLAIN = frozenset({_ANYTHING, _NUMBER, _FLAG, _TEXT})

#: Words in the names of texts and of flags, for parameters whose use in the code is not found.
_CHOICES = frozenset({"type", "mode", "estimator", "kind", "method", "strategy", "style"})
_SWITCHES = frozenset({"use", "is", "has", "do", "enable", "enabled", "with"})

#: Names of the inputs of a model, and of targets (only the user knows whether they are shifted) -> proposal.
_OF_MODEL: Mapping[str, str] = {
    **dict.fromkeys(("inputs", "input", "ids", "sequences", "x"), '"input_ids"'),
    **dict.fromkeys(("targets", "target", "tokens"), _ANYTHING),
}

#: The name of tokens of whole sequences has a word from each of these two sets.
_SEQUENCES = frozenset({"sequence", "sequences", "seq", "seqs", "input", "full", "all"})
_IDS = frozenset({"ids", "tokens", "token"})

#: The number of tokens of each prompt, where whole sequences are passed.
_PROMPT_TOKENS = str(PROMPT)

#: Proposal for a number of prompts: the size of a tensor that prompt ids index.
_SIZE_OF_IDS = "lambda batch: int(batch.group.max()) + 1"

#: Words in the names of parameters that hold several columns, and the proposal for these.
_BATCHES = frozenset({"batch", "data", "inputs", "experience", "experiences", "samples", "rollouts"})
_KEYS = '{"rewards": "reward"}'

#: Words that change the quantity that a name means: to the value of another state, a statistic, a factor.
_OTHERS = frozenset(
    {
        *("next", "last", "bootstrap", "target", "teacher", "student", "critic", "chosen", "rejected", "total"),
        *("mean", "std", "var", "min", "max", "sum", "avg", "count", "num", "norm", "running", "moving"),
        *("weight", "weights", "scale", "coef", "coeff", "penalty", "threshold", "entropy", "fn", "func", "model"),
        *("eps", "epsilon", "decay", "rate", "steps"),
    }
)

#: Words with which the name of a mask does not say whether padding or tokens are True.
_PADDING = frozenset({"padding", "pad", "padded"})


def lookup_hint(target: Target, path: str, why: Unbindable) -> str:
    """A hint if a function is not found: a file is named like a standard module, or another name is similar.

    Without a similar name, the functions of the module are listed. Empty if no hint applies.
    """
    module, _, name = path.rpartition(".")
    head, absent = module.partition(".")[0], isinstance(why, Absent)
    if head in sys.stdlib_module_names and (not absent or Path(f"{head}.py").is_file()):
        return ": rename the file, because a standard module has its name"
    if not absent:
        return ""
    try:
        members = vars(target.module(module))
    except Unbindable:
        return ""
    functions = [n for n, x in members.items() if inspect.isfunction(x) and x.__module__ == module]
    near = get_close_matches(name, members, n=1)
    return f": the nearest is {near[0]!r}" if near else f", {nearest(name, functions)}" if functions else ""


def unknown_message(
    function: str,
    unknown: Mapping[str, bool],
    passed: Iterable[Codec] = (),
    uses: Mapping[str, Use] = MappingProxyType({}),
    documented: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """One line about all parameters whose names are unknown, with a suggestion for ``bind``.

    A column is not proposed twice, and not if a known parameter has it: the audit would otherwise compare a column
    with itself.

    Args:
        function: its name.
        unknown: the path of each parameter, and whether it is an attribute of an object, as of a configuration.
        passed: codecs of the known parameters.
        uses: the paths that the code uses as plain values (``parameter_uses.plain_uses``).
        documented: path -> the binding that its docstring describes (``documented_columns``).
    """
    passed = list(passed)
    modeled = any(codec.modeled for codec in passed)
    taken = {f'"{column}"' for codec in passed for column in (codec.columns if len(codec.columns) == 1 else ())}
    suggested, doubtful, choices = list[str](), list[str](), list[str]()
    for path, attribute in unknown.items():
        proposal = (
            (f'"{documented[path]}"' if path in documented else "")
            or _plain(path, uses)
            or (_of_model(path) if modeled else "")
            or _beside(path, taken)
            or _suggestion(path, attribute=attribute)
        )
        if proposal in taken:
            doubtful.append(f"{path!r} (no second {proposal})")
            proposal = _ANYTHING
        taken |= {proposal} - _PLAIN
        suggested.append(f'"{path}": {proposal}')
        if proposal == _TEXT:
            choices.append(_choice(path, uses))
        elif proposal == _FLAG:
            choices.append(f"{path} is True or False")
    names, rest = ", ".join(map(repr, unknown)), ", ".join(doubtful)
    masks = "; padding is True at padding, mask at trained tokens" if '"padding"' in taken else ""
    each = "each of them" if len(unknown) > 1 else "it"
    return (
        f"{function} has the parameter{'s' if len(unknown) > 1 else ''} {names} of unknown name: bind {each}, as in "
        f"bind={{{', '.join(suggested)}}}, or --bind NAME=WHAT on the command line (a column, COLUMN[AXES], a number, "
        "true or false, 'a text' in quotes, or in Python an object or a function of the batch; docs/own-functions.md)"
        f"{masks}{f'; the column of {rest} is unknown' if rest else ''}{''.join(f'; {one}' for one in choices)}"
    )


def _of_model(name: str) -> str:
    """The proposed binding for an input of a model, or for targets; empty for other names."""
    words = set(name.lower().split("_"))
    return '"input_ids"' if words & _SEQUENCES and words & _IDS else _OF_MODEL.get(name, "")


def _beside(name: str, taken: AbstractSet[str]) -> str:
    """The proposed binding for ``A``, ``logq`` and ``log_q``, if another parameter is ``logprob``; otherwise empty."""
    known = {"A": '"advantage"', "logq": '"ref_logprob"', "log_q": '"ref_logprob"'}
    return known.get(name, "") if '"logprob"' in taken else ""


def _choice(path: str, uses: Mapping[str, Use]) -> str:
    """A hint that lists the texts with which the code compares a parameter; without such texts, how to write a text."""
    texts = uses[path][1] if path in uses else ()
    quoted = [f"\"'{text}'\"" for text in texts]
    if not quoted:
        return f"{path} is a text, as in \"'mean'\""
    return f"{path} is a text: {' or '.join(quoted)}{'' if len(quoted) > 1 else ', or another text'}"


def _plain(path: str, uses: Mapping[str, Use]) -> str:
    """The proposed binding for a number of prompts, a text, a flag or another number; otherwise empty.

    Texts and flags are recognized by their use, or by their names if the use is unknown; other numbers by their use.
    """
    name = path.rpartition(".")[2]
    words = set(name.lower().split("_"))
    kind = uses[path][0] if path in uses else ""
    if role_of(name) == "prompt_count":
        return _SIZE_OF_IDS
    if kind == "text" or (not kind and words & _CHOICES):
        return _TEXT
    if kind == "flag" or (not kind and words & _SWITCHES):
        return _FLAG
    return _number(path, words) if kind == "number" else ""


def _number(path: str, words: AbstractSet[str]) -> str:
    """The proposed binding for a size or another number."""
    if "prompt" in words and words & {"length", "len"}:
        return _PROMPT_TOKENS
    known = role_of("_".join(path.split(".")[-2:]))  # ``cfg.rollout.n``
    return f'"{BINDINGS[known]}"' if known == "group_size" else _NUMBER


def _suggestion(path: str, *, attribute: bool) -> str:
    """The column of the known name that ``path`` contains or resembles most; for a number, the known name itself.

    The name of a whole batch gets an example with keys, and a padding mask gets ``padding``. Without a similar known
    name, an attribute (such as of a configuration) is proposed as a number, anything else as a value computed from the
    batch.
    """
    name = path.rpartition(".")[2]
    near = _contained(name) or similar_names(name)[0]
    likeness = 1.0 if _contained(name) else SequenceMatcher(None, name, near).ratio()
    words = set(name.lower().split("_"))
    if words & _BATCHES and likeness < 1:
        return _KEYS
    if attribute and likeness < _SIMILAR:
        return _NUMBER
    if words & _PADDING and "mask" in name:
        return '"padding"'
    if likeness < _UNLIKE or (words & _OTHERS) - set(near.split("_")):
        return _NUMBER if attribute else _ANYTHING
    role = role_of(near)
    if words & _IDS and COLUMNS.get(ROLES[role].column or "", {}).get("role") == "signal":
        return _ANYTHING
    if role == "logprob":
        role = next((policy for policy, its in POLICIES.items() if words & its), role)
    known = BINDINGS.get(role) or ROLES[role].column or (near if role in NUMBERS else "")
    return f'"{known}"' if known else _ANYTHING


def _contained(name: str) -> str:
    """The longest part of ``name`` that is a known name; empty if no part is known, or if the result is ambiguous."""
    words = list(dict.fromkeys(name.lower().split("_")))[:_MOST_WORDS]
    for count in range(len(words), 0, -1):
        parts = {"_".join(part) for part in combinations(words, count)}
        known = {role: part for part in sorted(parts) if (role := role_of(part)) in BINDINGS or _column(role)}
        if known:
            return next(iter(known.values())) if len(known) == 1 else ""
    return ""


def _column(role: str) -> str:
    return ROLES[role].column if role else ""


def why_no_container(name: str, function: Callable[..., Any], parameter: str) -> str:
    """Why the keys of a parameter of the function ``name`` cannot be bound, and how to bind them."""
    known = parameters_of(function).get(parameter)
    whole = f'bind the whole parameter, as in bind={{"{parameter}": {{"KEY": "COLUMN"}}}}'
    if known is not None and not is_read(function, parameter):
        return f"{name} does not read {parameter}: drop this binding"
    if known is not None and known.default is not inspect.Parameter.empty:
        fix = f"remove the default, or, if {name} reads {parameter} as a dict, {whole}"
        return f"{parameter} keeps its default {shortened(known.default)}: {fix}"
    return f"{parameter} is not passed as a dict: if {name} reads it as a dict, {whole}"


def describe_arguments(codecs: Mapping[str, Codec], passed: Mapping[str, Any]) -> str:
    """One line with each argument: its column, type (if not a tensor) and shape, or its value if it has no column."""
    return ", ".join(f"{name}={_describe(codecs[name], value)}" for name, value in passed.items())


def _describe(codec: Codec, value: object) -> str:
    if not codec.columns:
        return f"int{list(value.shape)}" if isinstance(value, Tensor) else " ".join(str(value).split())[:40]
    if isinstance(codec, Container):
        return f"{{{', '.join(f'{n}={_describe(p, codec.get(value, n))}' for n, p in codec.parts.items())}}}"
    column = word_of(codec) or ("token_rewards" if len(codec.columns) > 1 else next(iter(codec.columns)))
    if isinstance(value, Tensor):
        return f"{column}{list(value.shape)}"
    if isinstance(value, list):
        return f"{column} as a list of {len(value)}"
    return f"{column} as numpy{list(value.shape)}" if isinstance(value, np.ndarray) else column
