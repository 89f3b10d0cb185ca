"""A second device for tests without a GPU: its tensors say they are on ``meta``, and have values.

An operation of such a tensor with one of the CPU fails, as on a GPU. Unlike on torch's own meta device, values can be
read, so that boolean indexing, ``unique`` and ``bincount`` run, and results can be compared with the CPU's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")


class _Elsewhere(Tensor):
    """A tensor that says it is on :data:`DEVICE`, around a tensor of the CPU."""

    held: Tensor
    is_meta = False  # the argument checks refuse torch's own meta tensors, which have no values

    @staticmethod
    def __new__(cls: type[Self], values: Tensor) -> Self:
        tensor: Self = Tensor._make_wrapper_subclass(
            cls, values.shape, strides=values.stride(), dtype=values.dtype, device=DEVICE
        )
        tensor.held = values
        return tensor

    def tolist(self) -> Any:
        """The values as Python numbers, which torch has for no subclass."""
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, _: Any, given: Any = (), named: Any = None) -> Any:
        return _run(function, given, named or {})


class _Factories(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Tensors that are made on :data:`DEVICE` have values too."""

    def __torch_dispatch__(self, function: Any, _: Any, given: Any = (), named: Any = None) -> Any:
        return _run(function, given, named or {})


def _values(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, _Elsewhere) else leaf


def _run(function: Any, given: Any, named: dict[str, Any]) -> Any:
    """Call an operation on the values; its results are on the device of its tensors, or on the one that it names."""
    tensors = [leaf for leaf in tree_leaves((given, named)) if isinstance(leaf, Tensor)]
    name = str(function).split(".")[1]
    # CUDA takes a number of the CPU as an operand, but not to join it with others, or to write into it.
    joins, writes = name in {"stack", "cat"}, name.endswith("_")
    counted = [t for t in tensors if isinstance(t, _Elsewhere) or t.dim() or joins or (writes and t is given[0])]
    there = [isinstance(t, _Elsewhere) for t in counted]
    if len(set(there)) > 1 and name not in {"_to_copy", "copy_"}:
        raise RuntimeError(f"{function}: tensors of two devices")
    named = dict(named)
    to = named.get("device")
    if to is not None:
        named["device"] = torch.device("cpu")
    result = function(*tree_map(_values, given), **tree_map(_values, named))
    elsewhere = torch.device(to) == DEVICE if to is not None else any(there)
    if not elsewhere:
        return result
    # An operation in place returns its argument.
    by_values = {id(t.held): t for t in tensors if isinstance(t, _Elsewhere)}

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return by_values[id(leaf)] if id(leaf) in by_values else _Elsewhere(leaf)

    return tree_map(placed, result)


@contextmanager
def other_device() -> Iterator[None]:
    """Let tensors be made on :data:`DEVICE`, and have values there."""
    with _Factories():  # type: ignore[no-untyped-call]  # torch's own
        yield


def put(tensor: Tensor) -> Tensor:
    """A copy of a tensor of the CPU on :data:`DEVICE`."""
    return _Elsewhere(tensor.detach().clone()).requires_grad_(tensor.requires_grad)


def read(tensor: Tensor) -> Tensor:
    """The values of a tensor on :data:`DEVICE`."""
    assert tensor.device == DEVICE, "a result of tensors of one device is on another"
    detached = tensor.detach()
    assert isinstance(detached, _Elsewhere)
    return detached.held
