"""A mask that is True at the padding after responses, as TRL passes it to its PPO."""

from dataclasses import dataclass
from typing import Any

import torch

from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.core.codec import Inputs, Sizes


@dataclass(frozen=True, slots=True)
class PaddingMask(ResponseMask):
    """A mask that is True after the last token of a response; it determines the lengths of the responses."""

    dtype: torch.dtype = torch.bool

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The mask in its layout; padding that the layout adds is padding too."""
        responses = self.form.lay_out(inputs.batch.valid, inputs)
        return (~responses).to(self.dtype)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - a tensor of masks
        """The sizes of the form, and the lengths: the number of positions in each row that are not padding."""
        return Sizes(length=(value == 0).sum(1)).merge(self.form.sizes(value))
