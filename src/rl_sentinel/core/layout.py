"""``Layout``: how a batch is laid out for a call: padding, micro-batches, ranks, dtype and device."""

from dataclasses import dataclass, fields
from typing import Any, Literal

Side = Literal["right", "left"]

#: The fields that a law may vary; a boundary names the fields that its arguments support.
Axis = Literal["extra", "padding", "micro_batches", "ranks", "context", "dtype", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout in which the batch of a case is passed to the target.

    Attributes:
        extra: number of padding columns beyond the longest response.
        padding: the side of the padding.
        micro_batches, ranks: number of parts that the rows are split into.
        context: number of ranks that share each sequence.
        dtype: dtype of the columns that a model computes (log-probs, values, logits, entropies); empty for that of the
            batch.
        device: the torch device.

    Example:
        >>> from rl_sentinel.core.layout import Layout
        >>> Layout(extra=2).changed()
        {'extra': 2}
    """

    extra: int = 0
    padding: Side = "right"
    micro_batches: int = 1
    ranks: int = 1
    context: int = 1
    dtype: Literal["", "float32", "float64", "bfloat16"] = ""
    device: str = "cpu"

    def changed(self) -> dict[str, Any]:
        """The fields that differ from the default layout."""
        default = Layout()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(default, name)}
