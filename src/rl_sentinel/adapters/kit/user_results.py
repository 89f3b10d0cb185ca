"""How the result of a user's function is read: the named output of a dict or tuple, per token or per row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.codec import Form, Sizes


class CallFailed(Exception):  # noqa: N818 - becomes the pair's errored reason
    """The function failed on what it was passed, or its result has no output of the expected name."""


@dataclass(frozen=True, slots=True)
class NamedOutput(Form):
    """The output in a result: the result itself, the first of a tuple, or the entry of a dict of that name.

    ``per_token`` spreads one number per row over its trained tokens; ``decision`` reads a mask of kept tokens as 1
    and 0, with 1 wherever nothing is trained.
    """

    name: str
    per_token: bool = False
    decision: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """Sizes that another argument tells."""
        return frozenset({"mask"}) if self.per_token else frozenset()

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - whatever the function returns
        """The output as ``[B, T]``, or as one number."""
        output = self._chosen(value)
        if not isinstance(output, Tensor):
            raise CallFailed(
                f"its {self.name} is of type {type(output).__name__}, expected a tensor: "
                "return torch.as_tensor(...) of it, or the tensor itself"
            )
        output = sizes.without_extra(output)
        if not self.per_token or sizes.mask is None:
            return output
        if output.dim() == 1:
            output = torch.where(sizes.mask, output.unsqueeze(1), 0.0)
        if self.decision and output.shape == sizes.mask.shape:
            return ((output > 0) | ~sizes.mask).float()
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
        own = f"(lambda r: {self._source()})({expression})"
        return f"(lambda x: x.unsqueeze(1) if x.dim() == 1 else x)({own})" if self.per_token else own

    def _source(self) -> str:
        entry = f"next(v for k, v in r.items() if {self.name!r} in str(k).lower())"
        return f"r[0] if isinstance(r, tuple) else {entry} if isinstance(r, dict) else r"
