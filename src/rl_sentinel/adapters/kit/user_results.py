"""Read the output from the result of a user's function: a tensor, a tuple, or an entry of a dict."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from rl_sentinel.adapters.kit.forms import Packed, Ragged
from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.core.codec import Form, Sizes

#: Entries of a result that a message lists.
_ENTRIES = 20


class CallFailed(Exception):  # noqa: N818 - reported as the reason of an errored pair
    """Raised if the function failed on its arguments, or if its result has no output with the expected name."""


@dataclass(frozen=True, slots=True)
class NamedOutput(Form):
    """Find the output in a result: the result itself, an item of a tuple, or the entry of a dict with this name.

    Attributes:
        name: name of the output in a dict.
        per_token: read ``[B, T]``; one number per row is repeated at its trained tokens.
        decision: read a mask of kept tokens: 1 for kept or untrained, 0 for dropped.
        packed: also accept ``[N]`` packed tokens.
        grouped: also accept ``[G, K]`` rows.
        sequences: also accept ``[B, 1 + T]`` with a column of zeros for the position without a prediction.
        time_first: read ``[T, B]``.
        of_tokens: raise an error for one number per response.
        item: position in a tuple, or the key or field of another result; ``stats.loss`` is a key of a dict in it.
        by_name: raise an error if no entry or field has the name.
        lists: read a tuple with a tensor per response or prompt as a list of these.
    """

    name: str
    per_token: bool = False
    decision: bool = False
    packed: bool = False
    grouped: bool = False
    sequences: bool = False
    time_first: bool = False
    of_tokens: bool = False
    item: int | str = 0
    by_name: bool = False
    lists: bool = False

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"mask"}) if self.per_token else frozenset()

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - any result
        """The output as ``[B, T]`` or as a scalar.

        Raises:
            CallFailed: if the result has no such output, or the output is not a tensor of real numbers or, where a
                scalar is expected, has several numbers.
        """
        output = self._select(list(value) if self._is_list(value, sizes) else value)
        tables = [_fields_of(row) or row for row in output] if isinstance(output, list) else []
        if tables and all(isinstance(row, Mapping) for row in tables):
            output = [row[self._key(row)] for row in tables]
        if self.per_token and isinstance(output, list) and output:
            output = self._list_as_tensor(output, sizes)
        if isinstance(output, np.ndarray):
            output = torch.as_tensor(output)
        if output is None:
            raise CallFailed(
                f"{self.name} of the result is None, expected a tensor: return the {self.name}, or write it into a "
                "dict that the function gets as an argument"
            )
        if not isinstance(output, Tensor):
            raise CallFailed(f"{self.name} of the result is of type {type(output).__name__}, {self._wanted(output)}")
        if output.is_complex():
            kind = str(output.dtype).removeprefix("torch.")
            raise CallFailed(f"{self.name} of the result has dtype {kind}, expected real numbers: return result.real")
        output = self._rows(output, sizes) if self.per_token else self._one_number(output)
        output = sizes.without_extra(output)
        if not self.per_token or sizes.mask is None:
            return output
        if output.dim() <= 1:
            output = self._at_trained_tokens(output, sizes.mask, sizes.length)
        if self.decision and output.shape == sizes.mask.shape:
            return ((output > 0) | ~sizes.mask).float()
        return output

    def _wanted(self, output: object) -> str:
        """The end of the message for an output that is not a tensor."""
        if entries := [*_fields_of(output)][:_ENTRIES]:
            return (
                f'expected a tensor: it has {", ".join(entries)}, so state one of them with bind={{"return": "NAME"}}'
            )
        if self.per_token:
            return "expected a tensor with a number for each response or token: return such a tensor"
        fix = "return the tensor, without float() or item()" if isinstance(output, float) else "return such a tensor"
        return f"expected a tensor with one number: {fix}"

    def _one_number(self, output: Tensor) -> Tensor:
        """The output as a scalar; it must have exactly one element."""
        if output.numel() != 1:
            raise CallFailed(
                f"{self.name} of the result has shape {list(output.shape)}, expected one number: check a wrapper "
                "that reduces the result of your function, for example to the mean over trained tokens"
            )
        return output.reshape(())

    def _at_trained_tokens(self, output: Tensor, mask: Tensor, length: Tensor | None) -> Tensor:
        """The number of each response, repeated at its trained tokens."""
        whole = output.shape == (len(mask),)
        if self.of_tokens and not whole:
            expected = [int(length.sum())] if self.packed and length is not None else list(mask.shape)
            raise CallFailed(
                f"{self.name} of the result has shape {list(output.shape)}, expected {expected}: return a number for "
                f"each token of each response, such as {self.name} * mask, and not {self.name}[mask] or a mean"
            )
        if self.of_tokens:
            raise CallFailed(
                f"{self.name} of the result is one number per response, expected one number per token: check "
                f"the function that returns {self.name} before the sum over tokens"
            )
        if not whole:
            raise CallFailed(
                f"{self.name} of the result has shape {list(output.shape)}, expected {[len(mask)]} or "
                f"{list(mask.shape)}: return a number for each response, or for each token of each response"
            )
        return torch.where(mask, output.unsqueeze(1), 0.0)

    def _is_list(self, value: Any, sizes: Sizes) -> bool:  # noqa: ANN401 - any result
        """Whether a tuple has a tensor per response or prompt, as ``split`` returns it, and not several outputs."""
        if not self.lists or self.item or not isinstance(value, tuple) or hasattr(value, "_asdict"):
            return False
        if not all(isinstance(x, Tensor) and x.dim() == 1 for x in value):
            return False
        counts = [len(x) for x in value]
        by_row = sizes.length is not None and counts == sizes.length.tolist()
        return by_row or (self.grouped and sum(counts) == sizes.rows)

    def _list_as_tensor(self, output: list[Any], sizes: Sizes) -> Any:  # noqa: ANN401 - a tensor, or the list
        """A list as a tensor.

        A list of numbers, or with one tensor per prompt, becomes ``[B]``; with one tensor per response, ``[B, T]``.

        Lists of numbers count as tensors; other lists are unchanged.
        """
        if all(isinstance(x, float | int) for x in output):
            return torch.tensor(output)
        if all(isinstance(x, list) for x in output):
            output = [torch.tensor(x) for x in output]
        if all(isinstance(x, Tensor) and x.dim() == 1 for x in output):
            by_prompt = self.grouped and len(output) != sizes.rows and sum(map(len, output)) == sizes.rows
            return torch.cat(output) if by_prompt else Ragged().read(output, sizes)
        if all(isinstance(x, Tensor) and x.dim() == 0 for x in output):
            return torch.stack(output)
        return output

    def _rows(self, output: Tensor, sizes: Sizes) -> Tensor:
        """The output as ``[B, T]`` or ``[B]``, from the time-first, packed, grouped or sequence layout."""
        rows = sizes.rows or 0
        if self.time_first and output.dim() == 2:
            return output.transpose(0, 1)
        if self.packed and output.dim() == 1 and sizes.length is not None and len(output) == int(sizes.length.sum()):
            return Packed().read(output, sizes)
        by_row = output.shape == (rows, sizes.width)
        if self.grouped and not by_row and output.dim() > 1 and output.shape[0] * output.shape[1] == rows:
            return output.flatten(0, 1)
        if output.dim() == 2 and output.shape == (rows, 1) and sizes.width != 1:
            return output.squeeze(1)
        if self.sequences and sizes.width and output.shape == (rows, sizes.width + 1):
            return _without_zeros(output)
        return output

    def _select(self, value: Any) -> Any:  # noqa: ANN401 - any result
        if isinstance(self.item, str):
            return self._at_path(value, self.item)
        if self._names_one(named := _fields_of(value)):
            value = named
        if self.by_name and not isinstance(value, Mapping):
            raise CallFailed(
                f"the result is of type {type(value).__name__}, expected a dict or an object with an entry named "
                f"{self.name}"
            )
        if isinstance(value, tuple) or _is_pair(value):
            if not -len(value) <= self.item < len(value):
                raise CallFailed(
                    f"the result is a tuple of {len(value)} items, expected {self.name} at position {self.item} "
                    '(counted from 0): state the position with bind={"return": N}'
                )
            return value[self.item]
        if self.item and not isinstance(value, Mapping):
            raise CallFailed(
                f"the result is of type {type(value).__name__}, expected a tuple with {self.name} at position "
                f'{self.item} (counted from 0): correct bind={{"return": {self.item}}}, or remove it'
            )
        return value[self._key(value)] if isinstance(value, Mapping) else value

    @staticmethod
    def _at_path(value: Any, path: str) -> Any:  # noqa: ANN401 - any result
        """The entry at a dotted path of keys and fields."""
        for word in path.split("."):
            table = value if isinstance(value, Mapping) else _fields_of(value)
            if word not in table:
                found = ", ".join([*map(str, table)][:_ENTRIES]) or f"nothing: a {type(value).__name__} has no entries"
                fix = f'correct bind={{"return": "{path}"}}'
                raise CallFailed(f"the result has no {path}, expected an entry {word}, found {found}: {fix}")
            value = table[word]
        return value

    def _names_one(self, table: Mapping[Any, Any]) -> bool:
        """Whether a key contains the name of the output or has its role; fields of an object may have other names."""
        return any(self.name in str(key).lower() or self._has_role(key) for key in table)

    def _has_role(self, key: object) -> bool:
        return role_of(str(key).lower()) in (self.name, f"{self.name}s")

    def _key(self, table: Mapping[Any, Any]) -> Any:  # noqa: ANN401 - a key
        exact = [key for key in table if str(key).lower() in (self.name, f"{self.name}s")]
        exact = exact or [key for key in table if self._has_role(key)]
        named = exact or [key for key in table if self.name in str(key).lower()]
        if len(named) != 1:
            entries = ", ".join([*map(str, table)][:_ENTRIES])
            raise CallFailed(
                f"the result has the entries {entries}, expected one entry named {self.name}: state its key with "
                'bind={"return": "KEY"}'
                if entries
                else f"the result has no entries, expected one named {self.name}: return it"
            )
        return named[0]

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002 - shapes are visible
        """Source that selects the output; one number per row becomes a column.

        Raises:
            NotImplementedError: for a packed or grouped layout.
        """
        if self.packed or self.grouped:
            raise NotImplementedError("a script cannot read a result in a packed or grouped layout")
        selected = f"(lambda r: {self._source()})({expression}){'.transpose(0, 1)' if self.time_first else ''}"
        return f"(lambda x: x.unsqueeze(1) if x.dim() == 1 else x)({selected})" if self.per_token else selected

    def _source(self) -> str:
        if isinstance(self.item, str):
            read = "lambda x, k: x[k] if isinstance(x, dict) else getattr(x, k)"
            return f"__import__('functools').reduce({read}, {self.item.split('.')}, r)"
        fields = "r._asdict() if hasattr(r, '_asdict') else vars(r) if hasattr(r, '__dict__') else {}"
        others = [x for role, one in ROLES.items() if self._has_role(role) for x in one.names if self.name not in x]
        known = f"{self.name!r} in str(k).lower()" + (f" or str(k).lower() in {others}" if others else "")
        named = f"(r if isinstance(r, dict) else {fields}).items() if {known}"
        return f"next((v for k, v in {named}), r[{self.item}] if isinstance(r, tuple) else r)"


class AnotherOutput(NamedOutput):
    """Read, in place of the output, another tensor of the same shape in the result.

    ``read`` raises :class:`CallFailed` if the result has no such tensor.
    """

    def _select(self, value: Any) -> Any:  # noqa: ANN401 - any result
        chosen = super()._select(value)
        table = _fields_of(value) or (value if isinstance(value, Mapping) else {})
        items = table.values() if table else value if isinstance(value, tuple) or _is_pair(value) else ()
        for item in items:
            if isinstance(item, Tensor) and item is not chosen and item.shape == getattr(chosen, "shape", None):
                return item
        raise CallFailed(f"the result has no other tensor of the shape of {self.name}")


def _fields_of(value: object) -> Mapping[str, Any]:
    """The fields of a named tuple, a dataclass or another object, and the items of dicts in an object's fields.

    Empty for a tensor, a plain tuple or a dict.
    """
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else {}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, Tensor | nn.Module | type | Mapping) or not hasattr(value, "__dict__"):
        return {}
    inner = [x for x in vars(value).values() if isinstance(x, Mapping)]
    return {**vars(value), **{key: x for one in inner for key, x in one.items()}}


def _is_pair(value: object) -> bool:
    """Whether a list has several tensors ``[B, T]``, like a tuple of outputs, and not one ``[T]`` per response."""
    return isinstance(value, list) and len(value) > 1 and all(isinstance(x, Tensor) and x.dim() == 2 for x in value)


def _without_zeros(output: Tensor) -> Tensor:
    """Drop the first position if it is 0 in all rows, otherwise the last position."""
    return output[:, 1:] if not output[:, 0].any() else output[:, :-1]
