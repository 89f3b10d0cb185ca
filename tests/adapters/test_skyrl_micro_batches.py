"""SkyRL's micro-batches by rows and by tokens, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.skyrl_worker_specimen import CONFIG, TRAINER
from adapters.test_skyrl_rollout import PREPROCESS
from rl_sentinel.adapters.skyrl import FRAMEWORK, micro_batches
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

BATCH = """
    class TensorBatch(dict):
        metadata = None

        @property
        def batch_size(self):
            return len(next(iter(self.values())))

    class TrainingInputBatch(TensorBatch):
        pass
"""

WORKER_UTILS = """
    import torch
    from skyrl.backends.skyrl_train.training_batch import TensorBatch

    def take(data, rows):
        part = TensorBatch({key: x[rows] for key, x in data.items()})
        part.metadata = data.metadata
        return part

    class RowBasedBatchIterator:
        def __init__(self, data, size):
            self.data, self.rows = data, torch.arange(data.batch_size).split(size)

        def __iter__(self):
            return (take(self.data, rows) for rows in self.rows)

        def reorder_and_combine_batches(self, answers):
            return {key: torch.cat([one[key] for one in answers]) for key in answers[0]}

    class TokenBasedBatchIterator:
        def __init__(self, data, most):
            self.data, self._microbatches, room = data, [], 0
            counts = data["attention_mask"].sum(1)
            for row in counts.argsort(descending=True).tolist():
                if not self._microbatches or counts[row] > room:
                    self._microbatches.append([])
                    room = most
                self._microbatches[-1].append(row)
                room -= counts[row]
            self.behind = self._sync_num_microbatches() - len(self._microbatches)

        def _sync_num_microbatches(self):
            raise RuntimeError("there is no other rank")

        def __iter__(self):
            for rows in self._microbatches:
                yield take(self.data, rows)
            for _ in range(self.behind):
                extra = take(self.data, [0])
                extra["loss_mask"] = extra["loss_mask"] * EXTRA
                yield extra

        def reorder_and_combine_batches(self, answers):
            rows = torch.tensor(sum(self._microbatches, []))
            kept = answers[: len(self._microbatches)]
            return {key: torch.cat([one[key] for one in kept])[ORDER] for key in answers[0]}

    def get_microbatch_iterator(data, size, most_tokens):
        return TokenBasedBatchIterator(data, most_tokens) if most_tokens else RowBasedBatchIterator(data, size)
"""


def _bound(loads: Loads, *, extra: str = "0", order: str = "rows.argsort()") -> tuple[Target, Boundary]:
    files = {
        "skyrl/backends/skyrl_train/training_batch.py": BATCH,
        "skyrl/backends/skyrl_train/workers/worker_utils.py": WORKER_UTILS.replace("EXTRA", extra).replace(
            "ORDER", order
        ),
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/dataset/preprocess.py": PREPROCESS,
        "skyrl/train/trainer.py": TRAINER,
    }
    target = loads(FRAMEWORK, files)
    return target, the_only(micro_batches.boundaries(target))


def test_sound(loads: Loads) -> None:
    """However the rows are cut, each trains once and comes back at its own place."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])
    for setting in boundary.settings:
        for law in (PLC004, DAT002):
            check_verdict(law, boundary, setting, target, found=False)


@pytest.mark.parametrize(
    ("broken", "law", "setting"),
    [
        ({"order": "rows"}, PLC004, "by tokens"),
        ({"extra": "1"}, DAT002, "by tokens, another rank has more"),
    ],
)
def test_broken(loads: Loads, broken: dict[str, str], law: Law, setting: str) -> None:
    """Results left in the order of the cut, and a row that trains again while another rank is not done."""
    target, boundary = _bound(loads, **broken)
    check_verdict(law, boundary, "by rows", target, found=False)
    check_verdict(law, boundary, setting, target, found=True)


def test_other_layout(loads: Loads) -> None:
    """A release without the iterator has no such boundary."""
    path = "skyrl/backends/skyrl_train/workers/worker_utils.py"
    target = loads(FRAMEWORK, {path: WORKER_UTILS.replace("get_microbatch_iterator", "iterator")})
    assert list(micro_batches.boundaries(target)) == []
