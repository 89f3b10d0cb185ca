"""Convert cases to JSON and back; columns become nested lists."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.core.stored_columns import check_batch, check_knobs, check_values, check_whole, dtype_of

#: Columns that describe the shape of a batch and are always stored.
_STRUCTURE = ("group", "length", "mask", "excluded", "scored", "prompt_length")

#: Largest seed of a case; torch accepts 63 bits.
MOST_SEED = 2**63 - 1

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def plain(tensor: Tensor) -> Any:  # noqa: ANN401 - nested lists of numbers
    """A tensor as nested lists; non-finite numbers become strings, because JSON has no such numbers."""

    def json_value(x: Any) -> Any:  # noqa: ANN401
        if isinstance(x, list):
            return [json_value(y) for y in x]
        if isinstance(x, float) and not math.isfinite(x):
            return str(x)
        return x

    return json_value(tensor.detach().cpu().tolist())


def _column(name: str, stored: Mapping[str, Any]) -> Tensor:
    def number(x: Any) -> Any:  # noqa: ANN401
        if isinstance(x, list):
            return [number(y) for y in x]
        return _NON_FINITE.get(x, x) if isinstance(x, str) else x

    dtype, values = dtype_of(name, stored["dtype"]), number(stored["values"])
    check_values(name, values)
    return torch.tensor(values, dtype=dtype, device="cpu")


def case_as_json(case: Case, reads: Iterable[str]) -> dict[str, Any]:
    """Convert a case to JSON.

    A column outside ``reads`` is left out if it has its default value, unless it describes the shape of the batch. The
    layout is left out too: a law sets the layout of the calls that it makes.
    """
    required = set(reads) | set(_STRUCTURE)
    default = batch_of(case.batch.mask)
    stored = {}
    for name in COLUMNS:
        column = getattr(case.batch, name)
        if name in required or not torch.equal(column, getattr(default, name)):
            stored[name] = {"dtype": str(column.dtype).removeprefix("torch."), "values": plain(column)}
    return {
        "batch": stored,
        "setting": case.setting,
        "override": dict(case.override),
        "draw": dict(case.draw),
        "seed": case.seed,
    }


def case_from_json(data: Mapping[str, Any]) -> Case:
    """Read a case that :func:`case_as_json` wrote.

    Raises:
        SentinelError: if a key is missing, or a value is not valid.
    """
    try:
        columns = {name: _column(name, column) for name, column in data["batch"].items()}
        mask = columns.pop("mask")
        if mask.dim() != 2:
            raise ValueError(f"batch[mask] has shape {list(mask.shape)}, expected [B, T]")  # noqa: TRY301 - as below
        batch = batch_of(mask, **columns)
        check_batch(batch)
        if not isinstance(data["setting"], str):
            raise ValueError(f"setting is {shortened(data['setting'])}, expected a string")  # noqa: TRY301, TRY004 - one handler for all damaged values
        return Case(
            batch=batch,
            setting=data["setting"],
            override=check_knobs("override", data["override"]),
            draw=check_knobs("draw", data["draw"]),
            seed=check_whole("seed", data["seed"], MOST_SEED),
        )
    except KeyError as error:
        raise SentinelError(
            f"case is damaged ({error} is missing), expected a case that an audit wrote: audit again"
        ) from error
    except (TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        reason = f"a value has a wrong type: {reason}" if isinstance(error, TypeError | AttributeError) else reason
        raise SentinelError(f"case is damaged ({reason}), expected a case that an audit wrote: audit again") from error
