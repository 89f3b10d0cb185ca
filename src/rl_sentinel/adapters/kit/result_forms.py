"""Layouts of results: masks, one number per row, logged metrics, sums over micro-batches."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.forms import Number, lengths_of, mask_of
from rl_sentinel.core.codec import Form, Sizes


@dataclass(frozen=True, slots=True)
class RowWise(Form):
    """A result ``[B, T]``, which is read in another form, or ``[B, 1]``: one number for all tokens of a row."""

    form: Form

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]``; a number per row is repeated at all response tokens."""
        if value.shape[1] != 1 or sizes.width == 1:
            return self.form.read(value, sizes)
        valid = torch.arange(sizes.width or 1, device=value.device) < torch.tensor(lengths_of(sizes)).unsqueeze(1)
        return torch.where(valid, value, torch.zeros((), dtype=value.dtype, device=value.device))

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002 - [B, 1] is shown as it is
        """The expression of the value, unchanged."""
        return expression


@dataclass(frozen=True, slots=True)
class AsReturned(Form):
    """A tensor that is already in the neutral layout, as returned by functions of this package."""

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - the runner reports values that are not tensors
        """The value without the padding that the layout added."""
        tensor: Tensor = value
        return sizes.without_extra(tensor) if isinstance(value, Tensor) else tensor


@dataclass(frozen=True, slots=True)
class Accepted(Form):
    """The number 1 if a call returned, e.g. the constructor of a configuration accepted its settings."""

    @override
    def read(self, value: Any, sizes: Sizes) -> Tensor:
        return torch.tensor(1.0)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """Source of the number 1, which runs only if the call returned."""
        return "torch.tensor(1.0)"


@dataclass(frozen=True, slots=True)
class KeptMask(Form):
    """A mask of kept tokens: 1 for kept, 0 for dropped; always 1 at untrained tokens, which cannot be dropped."""

    form: Form

    @property
    @override
    def needs(self) -> frozenset[str]:
        return self.form.needs | {"mask"}

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - as the form
        """The mask: 1 at kept and at untrained tokens, else 0."""
        return ((self.form.read(value, sizes) > 0) | ~mask_of(sizes)).float()

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source of a mask that is 1 at kept tokens."""
        return f"({self.form.source(expression, sizes)} > 0).float()"


@dataclass(frozen=True, slots=True)
class RequiresGrad(Form):
    """The number 1 if a tensor requires a gradient, else 0."""

    @override
    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        return torch.tensor(float(value.requires_grad))

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """Source of the number 1 or 0."""
        return f"torch.tensor(float({expression}.requires_grad))"


@dataclass(frozen=True, slots=True)
class OffMask(Form):
    """A form that reads a result in another form and puts ``value`` at untrained tokens.

    A decision has no effect at these tokens.
    """

    form: Form
    value: float

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"mask"})

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - as the form
        """The tensor with ``value`` at untrained tokens."""
        tensor = self.form.read(value, sizes)
        return torch.where(mask_of(sizes), tensor, torch.full_like(tensor, self.value))

    @override
    def source(self, expression: str, sizes: Sizes) -> str:
        return self.form.source(expression, sizes)


@dataclass(frozen=True, slots=True)
class Detached(Number):
    """One logged number, without its gradient."""

    @override
    def read(self, value: Any, sizes: Sizes) -> Tensor:
        return value.detach().float() if isinstance(value, Tensor) else torch.tensor(float(value))


@dataclass(frozen=True, slots=True)
class OrZero(Number):
    """One logged number, with 0 instead of NaN, because the mean of no values may be NaN."""

    @override
    def read(self, value: Any, sizes: Sizes) -> Tensor:
        return torch.as_tensor(value).detach().float().nan_to_num()

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """Source of the number, or of 0."""
        return f"torch.as_tensor({expression}).float().nan_to_num()"


@dataclass(frozen=True, slots=True, init=False)
class FirstOf(Number):
    """The first number in a dict of metrics whose name ends with one of the given endings."""

    endings: tuple[str, ...]

    def __init__(self, *endings: str) -> None:
        """Set the endings."""
        object.__setattr__(self, "endings", endings)

    @override
    def read(self, value: Any, sizes: Sizes) -> Tensor:
        return torch.tensor(float(next(number for name, number in value.items() if name.endswith(self.endings))))

    @override
    def source(self, expression: str, sizes: Sizes) -> str:
        return f"torch.tensor(next(v for k, v in {expression}.items() if k.endswith({self.endings!r})))"


@dataclass(frozen=True, slots=True)
class RowSum(Form):
    """``[B, T]`` read as one number per row: the sum over its tokens."""

    @override
    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        return value.sum(-1)

    @override
    def source(self, expression: str, sizes: Sizes) -> str:
        return f"{expression}.sum(-1)"


@dataclass(frozen=True, slots=True)
class Total(Number):
    """The sum of a list of scalar tensors, such as the losses of all micro-batches."""

    @override
    def read(self, value: Any, sizes: Sizes) -> Tensor:
        return torch.stack(list(value)).sum()

    @override
    def source(self, expression: str, sizes: Sizes) -> str:
        return f"torch.stack({expression}).sum()"
