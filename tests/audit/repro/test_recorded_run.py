"""What a recorder keeps of a run."""

import torch
from torch import Tensor

from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.repro.recorded_run import ScriptRecorder
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.case import Case, with_layout
from specimens import specimen


def _doubled(batch: Batch) -> Tensor:
    return batch.reward.unsqueeze(1) * 2 * batch.mask


def test_calls_and_outputs_of_each_run() -> None:
    """Each call is kept in order, with its case and its answer, which is handed on."""
    recorder = ScriptRecorder(Asker(specimen(_doubled, reads="reward mask"), {}))
    batch = batch_of(torch.ones(1, 2, dtype=torch.bool), reward=torch.tensor([3.0]))
    answer = recorder(Case(batch))
    recorder(with_layout(Case(batch), extra=1))
    first, second = recorder.runs
    assert first.outputs is answer.values
    assert first.outputs["advantage"].tolist() == [[6.0, 6.0]]
    assert (first.sizes.rows, first.sizes.width) == (1, 2)
    assert (first.cut("advantage"), second.cut("advantage")) == ("", "[:, :2]")
