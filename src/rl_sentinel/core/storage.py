"""Cases as JSON: all columns that count, in plain lists, and back."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, Batch, batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import SentinelError

#: Columns that describe the shape of a batch and are always stored.
_STRUCTURE = ("group", "length", "mask", "excluded", "scored", "prompt_length")

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def plain(tensor: Tensor) -> Any:  # noqa: ANN401 - nested lists of numbers
    """A tensor as nested lists, with non-finite numbers as words, since JSON has none."""

    def word(x: Any) -> Any:  # noqa: ANN401
        if isinstance(x, list):
            return [word(y) for y in x]
        if isinstance(x, float) and not math.isfinite(x):
            return str(x)
        return x

    return word(tensor.detach().cpu().tolist())


def _tensor(values: Any, dtype: torch.dtype) -> Tensor:  # noqa: ANN401
    def number(x: Any) -> Any:  # noqa: ANN401
        if isinstance(x, list):
            return [number(y) for y in x]
        return _NON_FINITE[x] if isinstance(x, str) else x

    return torch.tensor(number(values), dtype=dtype)


def case_as_json(case: Case, reads: Iterable[str]) -> dict[str, Any]:
    """The case with the columns that ``reads`` names; the others keep their plain value."""
    keep = set(reads) | set(_STRUCTURE)
    plainest = batch_of(case.batch.mask)
    stored = {}
    for name in COLUMNS:
        column = getattr(case.batch, name)
        if name in keep or not torch.equal(column, getattr(plainest, name)):
            stored[name] = {"dtype": str(column.dtype).removeprefix("torch."), "values": plain(column)}
    return {
        "batch": stored,
        "setting": case.setting,
        "override": dict(case.override),
        "draw": dict(case.draw),
        "seed": case.seed,
    }


def case_from_json(data: Mapping[str, Any]) -> Case:
    """The case that :func:`case_as_json` wrote.

    Raises:
        SentinelError: where a key is missing, or a column is none or has the wrong shape.
    """
    try:
        given = {
            name: _tensor(column["values"], getattr(torch, column["dtype"])) for name, column in data["batch"].items()
        }
        mask = given.pop("mask")
        batch = batch_of(mask, **given)
        _check_shapes(batch)
        return Case(
            batch=batch,
            setting=str(data["setting"]),
            override=dict(data["override"]),
            draw=dict(data["draw"]),
            seed=int(data["seed"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"case is damaged ({type(error).__name__}: {error}), expected what an audit wrote"
        raise SentinelError(message) from error


def _check_shapes(batch: Batch) -> None:
    sizes = {"B": batch.rows, "T": batch.width}
    for name, about in COLUMNS.items():
        axes = about["axes"].split()
        shape = getattr(batch, name).shape
        if len(shape) != len(axes) or any(sizes.get(a, n) != n for a, n in zip(axes, shape, strict=True)):
            message = f"batch[{name}] has shape {list(shape)}, expected axes {about['axes']}"
            raise ValueError(message)
