"""Read the result of a user's function: the named output of a dict or tuple, per token or per row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.forms import Packed, Ragged
from rl_sentinel.core.codec import Form, Sizes


class CallFailed(Exception):  # noqa: N818 - becomes the pair's errored reason
    """The function failed on what it was passed, or its result has no output of the expected name."""


@dataclass(frozen=True, slots=True)
class NamedOutput(Form):
    """The output in a result: the result itself, the first of a tuple, or the entry of a dict of that name.

    ``per_token`` spreads one number per row over its trained tokens; ``decision`` reads a mask of kept tokens as 1
    and 0, with 1 wherever nothing is trained. ``packed`` reads ``[N]`` tokens, ``grouped`` reads ``[G, K]`` rows,
    ``sequences`` reads ``[B, 1 + T]`` with a column of zeros for the token that nothing predicts.
    """

    name: str
    per_token: bool = False
    decision: bool = False
    packed: bool = False
    grouped: bool = False
    sequences: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """Sizes that another argument tells."""
        return frozenset({"mask"}) if self.per_token else frozenset()

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - whatever the function returns
        """The output as ``[B, T]``, or as one number."""
        output = self._chosen(value)
        if self.per_token and isinstance(output, list) and output:
            output = self._of_list(output, sizes)
        if not isinstance(output, Tensor):
            raise CallFailed(
                f"its {self.name} is of type {type(output).__name__}, expected a tensor: "
                "return torch.as_tensor(...) of it, or the tensor itself"
            )
        if self.per_token:
            output = self._rows(output, sizes)
        output = sizes.without_extra(output)
        if not self.per_token or sizes.mask is None:
            return output
        if output.dim() == 1:
            output = torch.where(sizes.mask, output.unsqueeze(1), 0.0)
        if self.decision and output.shape == sizes.mask.shape:
            return ((output > 0) | ~sizes.mask).float()
        return output

    def _of_list(self, output: list[Any], sizes: Sizes) -> Any:  # noqa: ANN401 - a tensor where it is one of numbers
        """A list of numbers as a tensor; one tensor per response as ``[B, T]``."""
        if all(isinstance(x, float | int) for x in output):
            return torch.tensor(output)
        if all(isinstance(x, Tensor) and x.dim() == 1 for x in output):
            return Ragged().read(output, sizes)
        if all(isinstance(x, Tensor) and x.dim() == 0 for x in output):
            return torch.stack(output)
        return output

    def _rows(self, output: Tensor, sizes: Sizes) -> Tensor:
        """The output with a row for each response, or one number each."""
        rows = sizes.rows or 0
        if self.packed and output.dim() == 1 and sizes.length is not None and len(output) == int(sizes.length.sum()):
            return Packed().read(output, sizes)
        if self.grouped and output.dim() > 1 and output.shape[0] * output.shape[1] == rows:
            return output.flatten(0, 1)
        if output.dim() == 2 and output.shape == (rows, 1) and sizes.width != 1:
            return output.squeeze(1)
        if self.sequences and sizes.width and output.shape == (rows, sizes.width + 1):
            return _without_zeros(output)
        return output

    def _chosen(self, value: Any) -> Any:  # noqa: ANN401 - whatever the function returns
        if isinstance(value, tuple):
            return value[0]
        return value[self._key(value)] if isinstance(value, Mapping) else value

    def _key(self, table: Mapping[Any, Any]) -> Any:  # noqa: ANN401 - a key of the table
        exact = [key for key in table if str(key).lower() in (self.name, f"{self.name}s")]
        named = exact or [key for key in table if self.name in str(key).lower()]
        if len(named) != 1:
            entries = ", ".join(map(str, table))
            raise CallFailed(f"the result is a dict of {entries}, expected one entry named {self.name}")
        return named[0]

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002 - shapes are visible
        """The output, as a column where it may be one number per row."""
        if self.packed or self.grouped:
            raise NotImplementedError("a script of this layout is not written")
        own = f"(lambda r: {self._source()})({expression})"
        return f"(lambda x: x.unsqueeze(1) if x.dim() == 1 else x)({own})" if self.per_token else own

    def _source(self) -> str:
        entry = f"next(v for k, v in r.items() if {self.name!r} in str(k).lower())"
        return f"r[0] if isinstance(r, tuple) else {entry} if isinstance(r, dict) else r"


def _without_zeros(output: Tensor) -> Tensor:
    """The positions without the first one, where it is 0 in all rows, or without the last one."""
    return output[:, 1:] if not output[:, 0].any() else output[:, :-1]
