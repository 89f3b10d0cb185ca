"""What a signature tells of a function: arguments that it takes, made of their names, and what it must give."""

import inspect
from collections.abc import Callable, Mapping
from itertools import product
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from rl_sentinel.frameworks.reference.arguments import NUMBERS, SIGNAL
from rl_sentinel.frameworks.target import Target

#: Which tokens train: one in a gap, a row without any, and an end that does not.
_MASK = ((True, True, False, False), (True, False, True, True), (False,) * 4)

#: Tokens of each row, as packed.
LENGTH = (3, 4, 1)

#: Parameters that are columns of rows, and of labels, by what they hold.
_OF_ROWS: Mapping[str, Any] = {
    **dict.fromkeys(("reward", "reward_baseline", "row"), (0.5, 1.0, 0.25)),
    **dict.fromkeys(("scored", "keep", "last"), (True, True, True)),
    "reward_parts": ((0.5, 1.0), (0.25, 0.0), (1.0, 2.0)),
    "group": (4, 3, 3),
    "trajectory": (6, 5, 7),
    **dict.fromkeys(("length", "tokens"), LENGTH),
    "prompt_length": (1, 2, 1),
}

#: Function -> parameters that hold another thing there.
_OWN: Mapping[str, Mapping[str, Any]] = {
    **{f"groups.{n}": {"values": _OF_ROWS["reward"]} for n in ("group_sums", "group_maxima", "deviations", "moments")},
    "groups.centred": {"values": _OF_ROWS["reward"], "weight": _OF_ROWS["reward"]},
    "groups.require_finite": {"values": _OF_ROWS["reward"]},
    "advantage.gdpo.advantages": {"weight": (1.0, 2.0)},
    "minibatches.aggregation": {"length": None, "mode": "token-mean"},
    "align.response_aligned": {"values": ((0.5,) * 6,) * 3, "width": 4, "predicts_next": True},
    "covariance.drawn_between": {"low": -9.0, "high": 9.0, "share": 1.0},
}

#: Parameters that are no tensors, beside the numbers of the audit.
_GIVEN: Mapping[str, Any] = {"generator": None, "denominator": 2.0, "prompts": 1, "low": 0.1, "high": 2.0}

#: The choices of a normalisation.
_BY: Mapping[str, Any] = {
    "mean": "batch",
    "deviation": "batch",
    "leave_one_out": False,
    "biased": False,
    "epsilon": 0.0,
}


def annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """What each parameter is said to be."""
    return {n: p.annotation for n, p in inspect.signature(function).parameters.items()}


def takes_segments(function: Callable[..., Any]) -> bool:
    """Whether its tokens may be packed."""
    return "Segments" in str(annotations(function).get("mask", ""))


def choices(function: Callable[..., Any]) -> list[dict[str, Any]]:
    """What it may be called with beside its tensors: each word with each other, and what is its own."""
    path = f"{function.__module__}.{function.__name__}".removeprefix(f"{SIGNAL}.")
    words: dict[str, Any] = {n: get_args(a) for n, a in annotations(function).items() if get_origin(a) is Literal}
    unions = {n: get_args(a) for n, a in annotations(function).items() if isinstance(a, UnionType)}
    either = [n for n, kinds in unions.items() if all(hasattr(kind, "dtypes") for kind in kinds)]
    words |= dict.fromkeys(either, (None, _OF_ROWS["reward"]))  # per token, as it is plainly made, and per row
    every = [dict(zip(words, chosen, strict=True)) for chosen in product(*words.values())]
    return [{**{n: v for n, v in one.items() if v is not None}, **_OWN.get(path, {})} for one in every]


def trained_tokens() -> Tensor:
    """The mask of padded rows that arguments are made for."""
    return torch.tensor(_MASK)


def arguments(target: Target, path: str, by: Mapping[str, Any], mask: Tensor) -> dict[str, Any]:
    """Arguments that are taken, for a mask of padded rows; those in ``by`` are as they are there."""
    rows, width = mask.shape
    wide = -(torch.arange(float(rows * width)) % 11 + 1).reshape(rows, width) / 16
    impossible = torch.full_like(wide, -torch.inf)  # a word that no token is
    labels = torch.arange(rows * width).reshape(rows, width) % 3
    made: dict[str, Any] = {**{n: torch.tensor(v) for n, v in _OF_ROWS.items()}, **NUMBERS, **_GIVEN}
    made |= {"mask": mask, "live": mask.any(dim=1), "chosen": mask, "fact": wide < -0.25}
    made["turn"] = (torch.arange(width) // 2).expand(rows, width)
    made |= {"token": labels, "version": labels, "logits": torch.stack([wide, wide * 2, -wide, impossible], dim=2)}
    made |= {"weight": wide.exp(), "pi_squared": wide.exp()}
    made["aggregation"] = target.call(f"{SIGNAL}.reduce.Aggregation", "token-mean", 5.0)
    made["by"] = target.call(f"{SIGNAL}.normalisation.Normalisation", **_BY)
    found: dict[str, Any] = {}
    for name, kind in annotations(target.find(path)).items():
        plain = wide + (len(name) % 5) / 64 if "Tensor" in str(kind) else kind is bool or 0.5
        own = by.get(name, made.get(name, plain))
        found[name] = torch.tensor(own) if isinstance(own, tuple) else own
    return found


def answer(target: Target, path: str, given: Mapping[str, Any]) -> list[Any]:
    """What a function gives, in order.

    Raises:
        ValueError: if a tensor is of another kind or shape than the annotation tells.
    """
    result = target.call(path, **given)
    found = list(result) if isinstance(result, tuple) else [result]
    sizes = _sizes(given)
    for value, kind in zip(found, _kinds(target.find(path)), strict=False):
        if isinstance(value, Tensor) and hasattr(kind, "dtypes"):
            wanted = [
                n for axis in kind.dim_str.split() for n in sizes.get("*" if axis.startswith("*") else axis, [None])
            ]
            pairs = zip(value.shape, wanted, strict=False)
            fits = len(wanted) == value.dim() and all(n in {None, size} for size, n in pairs)
            if not fits or str(value.dtype).removeprefix("torch.") not in kind.dtypes:
                raise ValueError(f"{path} gave {value.dtype} of shape {list(value.shape)}, expected {kind}")
    return found


def _sizes(given: Mapping[str, Any]) -> dict[str, list[int]]:
    """How long each axis is, of those that the arguments tell."""
    mask, live = given.get("mask"), given.get("live")
    if mask is None:
        return {} if live is None else {"B": [len(live)]}
    if isinstance(mask, Tensor):
        return {"B": [len(mask)], "T": list(mask.shape[1:]), "*": list(mask.shape)}
    return {"B": [len(mask.length)], "*": [len(mask.mask)]}


def _kinds(function: Callable[..., Any]) -> list[Any]:
    """Annotations of what a function gives, one for each tensor; nothing where they do not tell."""
    found = inspect.signature(function).return_annotation
    if isinstance(found, type) and hasattr(found, "_fields"):
        return list(inspect.get_annotations(found).values())
    return list(get_args(found)) if get_origin(found) is tuple else [found]
