"""Reuse results of earlier calls of a boundary if the columns that its calls read have the same content."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.case import Case
from rl_sentinel.core.observation import Observation

#: Number of results that are kept; the results of a boundary under one setting are fewer, except in a thorough audit.
MOST_RESULTS = 4096

#: What a call depends on besides the columns: the setting, overrides, layout and seed, the gradients, the alternative.
Manner = tuple[object, ...]


@dataclass(slots=True)
class EqualCalls:
    """Results of earlier calls, without the extra fields of watched calls.

    Laws draw many batches that differ only in columns that the boundary does not read, and shrinking meets the same
    batch again and again. Two calls give the same result if they agree in each column that any call has read so far:
    the columns that a call reads depend only on columns that it has read before.
    """

    columns: tuple[str, ...] = ()
    results: dict[tuple[object, ...], Observation] = field(default_factory=dict)

    def get(self, case: Case, manner: Manner) -> Observation | None:
        """The result of an equal call, or None."""
        return self.results.get(self._key(case.batch, manner)) if self.results else None

    def add(self, case: Case, manner: Manner, read: tuple[str, ...], result: Observation) -> None:
        """Keep the result of a call that read these columns."""
        new = set(read) - set(self.columns)
        if new or len(self.results) >= MOST_RESULTS:
            self.columns = tuple(name for name in COLUMNS if name in new or name in self.columns)
            self.results.clear()  # their keys lack a column
        plain = replace(result, inputs_after={}, arguments={})
        self.results[self._key(case.batch, manner)] = plain

    def _key(self, batch: Batch, manner: Manner) -> tuple[object, ...]:
        return (*(_content(getattr(batch, name)) for name in self.columns), *manner)


def _content(column: Tensor) -> tuple[object, ...]:
    return (column.shape, column.dtype, column.detach().cpu().contiguous().numpy().tobytes())
