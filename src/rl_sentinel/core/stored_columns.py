"""Validate a case that was read from a file: shapes, dtypes and ranges of its columns, before it is used."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core import batch as columns
from rl_sentinel.core.batch import COLUMNS, VOCABULARY, Batch

#: Limits on rows, response positions and prompt tokens of a stored case; cases that an audit finds are far smaller.
MOST_ROWS, MOST_WIDTH, MOST_PROMPT = 1024, 4096, 4096

#: role -> the dtypes of its columns.
_DTYPES: Mapping[str, Mapping[str, torch.dtype]] = {
    "signal": {n: getattr(torch, n) for n in ("float32", "float64", "bfloat16", "float16")},
    "label": {"int64": torch.int64},
    "mask": {"bool": torch.bool},
}

#: role -> Python types of its values.
_KINDS: Mapping[str, tuple[type, ...]] = {"signal": (int, float), "label": (int,), "mask": (bool,)}

#: What messages call the values of a role.
_VALUES = {"signal": "numbers", "label": "integers", "mask": "true or false"}


def dtype_of(name: str, dtype: object) -> torch.dtype:
    """The dtype of a stored column.

    Raises:
        ValueError: if the column does not exist, or cannot have this dtype.
    """
    if name not in COLUMNS:
        raise ValueError(f"batch[{name}] is not a column, expected one of {', '.join(COLUMNS)}")
    dtypes = _DTYPES[COLUMNS[name]["role"]]
    if not isinstance(dtype, str) or dtype not in dtypes:
        raise ValueError(f"batch[{name}] has dtype {_short(dtype)}, expected {' or '.join(dtypes)}")
    return dtypes[dtype]


def check_values(name: str, values: object) -> None:
    """Validate how deep the lists are nested (one level per axis of the column), and the type of the values.

    Raises:
        ValueError: if the nesting is too shallow or too deep, or a value is of another type.
    """
    axes, role = COLUMNS[name]["axes"].split(), COLUMNS[name]["role"]
    level = [values]
    for _ in axes:
        if not all(isinstance(x, list) for x in level):
            found = next(x for x in level if not isinstance(x, list))
            raise ValueError(
                f"batch[{name}] contains {_short(found)}, expected nested lists with the axes {' '.join(axes)}"
            )
        level = [y for x in level if isinstance(x, list) for y in x]
    for x in level:
        if not isinstance(x, _KINDS[role]) or (isinstance(x, bool) and role != "mask"):
            expected = f"{_VALUES[role]} nested by the axes {' '.join(axes)}"
            raise ValueError(f"batch[{name}] contains {_short(x)}, expected {expected}")


def _short(x: object) -> str:
    return repr(x) if isinstance(x, str | int | float | bool | None) else f"a {type(x).__name__}"


def check_batch(batch: Batch) -> None:
    """Validate the shapes of all columns, the range of labels that have one, and that no padding is in the mask.

    Raises:
        ValueError: naming the column, its value and the expected value.
    """
    sizes = {"B": batch.rows, "T": batch.width, "K": 2, "V": VOCABULARY}
    for name, about in COLUMNS.items():
        axes = about["axes"].split()
        shape = getattr(batch, name).shape
        if len(shape) != len(axes) or any(sizes[a] != n for a, n in zip(axes, shape, strict=True)):
            of_mask = ", ".join(f"{a} = {sizes[a]}" for a in axes if a in "BT")
            wanted = f"{[sizes[a] for a in axes]} (axes {about['axes']}; {of_mask} in batch[mask])"
            raise ValueError(f"batch[{name}] has shape {list(shape)}, expected {wanted}")
    if not (1 <= batch.rows <= MOST_ROWS and 1 <= batch.width <= MOST_WIDTH):
        size = f"{batch.rows} rows x {batch.width} tokens"
        raise ValueError(f"batch[mask] has {size}, expected 1 to {MOST_ROWS} rows x 1 to {MOST_WIDTH} tokens")
    last = batch.rows - 1
    _within("length", batch.length, 0, batch.width)
    _within("prompt_length", batch.prompt_length, 1, MOST_PROMPT)
    _within("excluded", batch.excluded, 0, max(columns.EXCLUDED.values()))
    _within("token", batch.token, 0, VOCABULARY - 1)
    for name in ("step", "turn"):
        _within(name, getattr(batch, name), 0, MOST_WIDTH)
    _within("trajectory", batch.trajectory, 0, max(last, MOST_ROWS))
    beyond = (batch.mask & ~batch.valid).nonzero().tolist()
    if beyond:
        row, token = beyond[0]
        raise ValueError(
            f"batch[mask] is True at row {row}, token {token}, expected True only before batch[length], which is "
            f"{int(batch.length[row])} there"
        )


def _within(name: str, column: Tensor, low: int, high: int) -> None:
    bad = column[(column < low) | (column > high)]
    if bad.numel():
        raise ValueError(f"batch[{name}] contains {int(bad.flatten()[0])}, expected {low} to {high}")


def check_knobs(name: str, knobs: object) -> dict[str, Any]:
    """Validate a mapping from names to plain values (numbers, strings, booleans or None), and return it as a dict.

    Raises:
        ValueError: if the value is anything else.
    """
    if not isinstance(knobs, dict) or not all(isinstance(key, str) for key in knobs):
        raise ValueError(f"{name} is {_short(knobs)}, expected an object with numbers, strings, booleans or null")
    for key, value in knobs.items():
        if value is not None and not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name}[{key}] is {_short(value)}, expected a number, a string, a boolean or null")
    return dict(knobs)


def check_whole(name: str, value: object, most: int) -> int:
    """Validate an integer from 0 to ``most``, and return it.

    Raises:
        ValueError: if the value is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{name} is {_short(value)}, expected a whole number from 0 to {most}")
    return value
