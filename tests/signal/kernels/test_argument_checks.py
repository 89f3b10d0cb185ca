"""The fast path of argument checks accepts nothing that the full check refuses."""

import inspect
from itertools import product
from typing import Literal

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import requirements
from rl_sentinel.signal.kernels.argument_checks import ROWS, TOKENS, Code, Column, Plain, columns_fit, wrap
from rl_sentinel.signal.requirements import DTYPES, Range
from rl_sentinel.signal.segments import Mask, Segments
from rl_sentinel.signal.validation import _plain, validate

RANGES = [r for r in vars(requirements).values() if isinstance(r, Range)]
EDGES = (0.0, 1.0, 10_000.0, 2.0**63, torch.inf, torch.nan)
VALUES = [
    *(sign * edge for edge in EDGES for sign in (1, -1)),
    *(sign * edge for edge in (0, 1, 2**63 - 1, 2**63, 2**80) for sign in (1, -1)),
    *(0.5, 1e-9, -1e-9, np.float32(0.5), torch.tensor(0.5), True, False, "0.5", "sum", None, [0.5], torch.Generator()),
]


def _accepts(plain: Plain, value: object) -> bool:
    try:
        plain.check(value)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("plain", [*RANGES, float, int, bool, Literal["sum", "mean"], torch.Generator | None])
def test_values_that_pass_fit(plain: object) -> None:
    span = plain if isinstance(plain, Range) else None
    check = _plain("x", plain, span)
    assert check is not None
    expression = check.passes.format("x", **{n: n for n in check.names})
    passed = [v for v in VALUES if eval(expression, {"x": v, **check.names})]  # noqa: S307 - an expression of the library
    assert all(_accepts(check, v) for v in passed)
    assert passed or plain is int


TENSORS = [torch.zeros(2), torch.zeros(3), torch.zeros(2, 3), torch.zeros(3, 2), torch.zeros(2, 3, device="meta")]
MASKS = [
    *(t.bool() for t in TENSORS),
    torch.zeros(2, 3),
    *(Segments(torch.ones(n).bool(), torch.tensor([n, 0])) for n in (2, 3)),
    Segments(torch.ones(3).bool(), torch.tensor([1, 1, 1])),
    None,
]


@pytest.mark.parametrize("rows", [False, True])
def test_tensors_that_pass_fit(*, rows: bool) -> None:
    columns = {"value": Column("floating", TOKENS, False, False), "mask": Column("bool", TOKENS, False, True)}  # noqa: FBT003 - two facts
    for optional, row in product((False, True), (None, *TENSORS)):
        own = columns | ({"row": Column("floating", ROWS, optional, False)} if row is not None else {})  # noqa: FBT003 - as above
        code = Code([], {})
        expression = columns_fit(own, DTYPES, code, rows=rows)
        code.lines.append(f"if not ({expression}): raise ValueError")

        def taken(value: object, *, mask: object, row: object = None) -> None: ...

        fast = wrap(taken, code)
        full = validate(rows=rows)(_with_row if row is not None else _without_row)
        for value, mask in product(TENSORS, MASKS):
            given = {"mask": mask} if row is None else {"mask": mask, "row": row}
            try:
                fast(value, **given)
            except ValueError:
                continue
            full(value, **given)


def _without_row(value: Float[Tensor, "*S"], *, mask: Mask) -> None: ...


def _with_row(value: Float[Tensor, "*S"], *, mask: Mask, row: Float[Tensor, " B"]) -> None: ...


def test_wrapper_has_the_parameters_of_the_function() -> None:
    @validate()
    def scaled(value: Float[Tensor, " B"], *, live: Bool[Tensor, " B"], scale: float = 2.0) -> Tensor:
        return torch.where(live, value * scale, 0.0)

    assert list(inspect.signature(scaled).parameters) == ["value", "live", "scale"]
    assert scaled(torch.ones(1), live=torch.ones(1).bool()).tolist() == [2.0]
    with pytest.raises(TypeError, match=r"scaled\(\) is called without live: it takes value, live, scale$"):
        scaled(torch.ones(1))  # type: ignore[call-arg]  # what is refused
