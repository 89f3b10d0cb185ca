"""Codec of values that are 0 at untrained tokens, for callers that set them to 0."""

from dataclasses import dataclass

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.codec import Inputs


@dataclass(frozen=True, slots=True)
class MaskedValue(Column):
    """The values of the critic before the update, which are 0 at untrained tokens."""

    name: str = "value"


def is_zero_off_mask(inputs: Inputs) -> str:
    """The reason why a caller that sets values of untrained tokens to 0 cannot pass the batch; empty if it can."""
    batch = inputs.batch
    return "" if not bool(batch.value[~batch.mask].any()) else "an untrained token has a value other than 0"


def zero_off_mask(batch: Batch) -> Batch:
    """Set the values of untrained tokens to 0; unchanged if they are 0 already."""
    return (
        with_columns(batch, value=batch.value.masked_fill(~batch.mask, 0.0))
        if is_zero_off_mask(Inputs(batch))
        else batch
    )
