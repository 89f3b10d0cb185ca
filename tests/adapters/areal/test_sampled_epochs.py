"""The order of the prompts that AReaL asks for, on specimens of its call shapes in words of our own."""

import pytest
import torch

from adapters.areal.test_dataloader import CREATE, OPTIONS
from adapters.checks import Loads, check_verdict, outputs_of, the_only
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK, sampled_epochs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_without_effect import LAW as CFG001

#: An executor that waits for its own queue, as in 2025.
WAITS = """
    import itertools
    from types import SimpleNamespace

    def concat_padded_tensors(results):
        raise RuntimeError("results are joined")

    def anew(loader):
        for epoch in itertools.count():
            ANNOUNCE
            yield from loader

    class WorkflowExecutor:
        def prepare_batch(self, dataloader, workflow=None):
            if not hasattr(self, "data_generator"):
                self.data_generator = ENDLESS(dataloader)
            assert self.input_queue.qsize() + dataloader.batch_size < self.input_queue.maxsize
            for item in next(self.data_generator):
                self.submit(item, workflow=workflow)
            return concat_padded_tensors([self.wait(dataloader.batch_size, timeout=1)])
"""

#: An executor whose dispatcher takes tasks, as since December 2025.
DISPATCHES = (
    WAITS[: WAITS.index("            assert self")].replace("ENDLESS(dataloader)", "self.tasks(dataloader)")
    + """
            results = self.dispatcher.active_submit_and_wait(self.data_generator, batch_size=dataloader.batch_size)
            return [result for result in results if result]

        @property
        def dispatcher(self):
            return self._dispatcher

        def tasks(self, dataloader):
            for batch in ENDLESS(dataloader):
                for item in batch:
                    yield SimpleNamespace(data=item, number=self._task_id_generator.next())
"""
)


def _bound(loads: Loads, files: dict[str, str], endless: str, announce: str) -> tuple[Target, Boundary]:
    made = {name: text.replace("ENDLESS", endless).replace("ANNOUNCE", announce) for name, text in files.items()}
    target = loads(FRAMEWORK, made)
    return target, the_only(sampled_epochs.boundaries(target))


EARLY = {"areal/api/workflow_api.py": WAITS}
LATE = {
    "areal/infra/workflow_executor.py": DISPATCHES,
    "areal/api/cli_args.py": OPTIONS,
    "areal/utils/dataloader.py": CREATE,
}
ANNOUNCED = "loader.sampler.set_epoch(epoch)"


@pytest.mark.parametrize(
    ("files", "endless", "announce"), [(EARLY, "anew", "pass"), (LATE, "anew", ANNOUNCED)], ids=["early", "late"]
)
def test_each_epoch_has_an_order(loads: Loads, files: dict[str, str], endless: str, announce: str) -> None:
    """All samples are asked for once in an epoch, in an order that the next one does not repeat."""
    target, boundary = _bound(loads, files, endless, announce)
    check_round_trips(target, [boundary])
    places = outputs_of(target, boundary, "shuffled", batch_of(torch.ones(8, 1, dtype=torch.bool)))
    assert sorted(places["place in the epoch"].tolist()) == list(range(8))
    check_verdict(CFG001, boundary, "shuffled", target, found=False)


@pytest.mark.parametrize(
    ("files", "endless", "announce"),
    [(EARLY, "itertools.cycle", "pass"), (LATE, "anew", "pass"), (LATE, "itertools.cycle", "pass")],
    ids=["early, stored", "late, not announced", "late, stored"],
)
def test_order_repeats(loads: Loads, files: dict[str, str], endless: str, announce: str) -> None:
    """The batches of the first epoch are stored, or its number never reaches the sampler."""
    target, boundary = _bound(loads, files, endless, announce)
    check_verdict(CFG001, boundary, "shuffled", target, found=True)
