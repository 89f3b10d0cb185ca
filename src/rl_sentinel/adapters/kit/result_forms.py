"""Layouts of results: a row's number repeated at its tokens, decisions, logged numbers."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.forms import Number, lengths_of, mask_of
from rl_sentinel.core.codec import Form, Sizes


@dataclass(frozen=True, slots=True)
class RowWise(Form):
    """``[B, T]`` in another form, or ``[B, 1]`` with one number for all tokens of a row."""

    form: Form

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]``; one number per row stands at all of the row's tokens."""
        if value.shape[1] != 1 or sizes.width == 1:
            return self.form.read(value, sizes)
        valid = torch.arange(sizes.width or 1, device=value.device) < torch.tensor(lengths_of(sizes)).unsqueeze(1)
        return torch.where(valid, value, torch.zeros((), dtype=value.dtype, device=value.device))

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002 - a column says it as well
        """The numbers as they are."""
        return expression


@dataclass(frozen=True, slots=True)
class AsReturned(Form):
    """A tensor in the neutral layout already, as functions of ours return it."""

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - the runner reports values that are not tensors
        """The value as it is, without padding that the layout added."""
        tensor: Tensor = value
        return sizes.without_extra(tensor) if isinstance(value, Tensor) else tensor


@dataclass(frozen=True, slots=True)
class Accepted(Form):
    """1 where a call came back at all, as the check of a configuration does that accepts it."""

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - whatever came back
        """The number 1."""
        return torch.tensor(1.0)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The number 1, after the call."""
        return "torch.tensor(1.0)"


@dataclass(frozen=True, slots=True)
class Kept(Form):
    """A mask with 1 for kept and 0 for dropped, with 1 wherever nothing is trained: there nothing can be left out."""

    form: Form

    @property
    def needs(self) -> frozenset[str]:
        """Sizes that another argument tells."""
        return self.form.needs | {"mask"}

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - as the form
        """1 where kept or untrained."""
        return ((self.form.read(value, sizes) > 0) | ~mask_of(sizes)).float()

    def source(self, expression: str, sizes: Sizes) -> str:
        """1 where kept."""
        return f"({self.form.source(expression, sizes)} > 0).float()"


@dataclass(frozen=True, slots=True)
class RequiresGrad(Form):
    """1 where a tensor requires a gradient."""

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:  # noqa: ARG002
        """The number 1 or 0."""
        return torch.tensor(float(value.requires_grad))

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """Whether it does."""
        return f"torch.tensor(float({expression}.requires_grad))"


@dataclass(frozen=True, slots=True)
class OffMask(Form):
    """Another form, with ``value`` wherever nothing is trained: what a decision says there changes nothing."""

    form: Form
    value: float

    @property
    def needs(self) -> frozenset[str]:
        """Sizes that another argument tells."""
        return frozenset({"mask"})

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - as the form
        """The tensor with ``value`` off the mask."""
        tensor = self.form.read(value, sizes)
        return torch.where(mask_of(sizes), tensor, torch.full_like(tensor, self.value))

    def source(self, expression: str, sizes: Sizes) -> str:
        """As the form."""
        return self.form.source(expression, sizes)


@dataclass(frozen=True, slots=True)
class Detached(Number):
    """One logged number, without its gradient."""

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - a tensor or a number
        """A float tensor without axes."""
        return value.detach().float() if isinstance(value, Tensor) else torch.tensor(float(value))


@dataclass(frozen=True, slots=True)
class OrZero(Number):
    """One logged number, 0 where it is NaN: for numbers of nothing, which a target may log as NaN."""

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - a tensor or a number
        """A float tensor without axes."""
        return torch.as_tensor(value).detach().float().nan_to_num()

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The number, or 0."""
        return f"torch.as_tensor({expression}).float().nan_to_num()"


@dataclass(frozen=True, slots=True, init=False)
class FirstOf(Number):
    """The first number of a table of metrics whose name has one of these endings."""

    endings: tuple[str, ...]

    def __init__(self, *endings: str) -> None:
        """Take the endings."""
        object.__setattr__(self, "endings", endings)

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - a table of metrics
        """A tensor without axes."""
        return torch.tensor(float(next(number for name, number in value.items() if name.endswith(self.endings))))

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """A tensor of the number."""
        return f"torch.tensor(next(v for k, v in {expression}.items() if k.endswith({self.endings!r})))"


@dataclass(frozen=True, slots=True)
class RowSum(Form):
    """``[B, T]`` read as one number per row: the sum over its tokens."""

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:  # noqa: ARG002
        """``[B]``."""
        return value.sum(-1)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The sum."""
        return f"{expression}.sum(-1)"


@dataclass(frozen=True, slots=True)
class Total(Number):
    """The sum of a list of numbers, as of the losses of all micro-batches."""

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - a list of tensors
        """A tensor without axes."""
        return torch.stack(list(value)).sum()

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The sum."""
        return f"torch.stack({expression}).sum()"
