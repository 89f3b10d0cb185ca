"""Codecs of arguments that count micro-batches, or the rows of a micro-batch."""

from rl_sentinel.adapters.kit.value_codecs import Derived

#: Number of micro-batches.
MICRO_BATCHES = Derived(lambda inputs: inputs.layout.micro_batches, frozenset({"micro_batches"}))

#: Rows of each micro-batch; :func:`~rl_sentinel.adapters.kit.requirements.equal_micro_batches` makes it exact.
MICRO_BATCH_ROWS = Derived(
    lambda inputs: inputs.batch.rows // inputs.layout.micro_batches, frozenset({"micro_batches"})
)
