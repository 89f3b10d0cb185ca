"""AReaL's order of the samples in an epoch, on specimens of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK, dataloader
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_without_effect import LAW as CFG001

OPTIONS = """
    from dataclasses import dataclass

    @dataclass
    class TrainDatasetConfig:
        path: str
        type: str
        batch_size: int
        num_workers: int
        shuffle: bool
"""

CREATE = """
    from torch.utils.data import DistributedSampler

    StatefulDataLoader = None

    def create_dataloader(dataset, rank, world_size, options, collate_fn=None):
        sampler = DistributedSampler(dataset, world_size, rank, shuffle=options.shuffle, drop_last=True)
        return StatefulDataLoader(
            dataset,
            batch_size=options.batch_size // world_size,
            sampler=sampler,
            drop_last=False,
            num_workers=options.num_workers,
            collate_fn=list,
        )
"""

CYCLE = """
    from itertools import count

    def cycle_dataloader(loader):
        for epoch in count():
            ANNOUNCE
            yield from loader
"""

ANNOUNCED = "loader.sampler.set_epoch(epoch)"


def _cycle(loads: Loads, announce: str) -> tuple[Target, Boundary]:
    files = {
        "areal/api/cli_args.py": OPTIONS,
        "areal/utils/dataloader.py": CREATE,
        "areal/utils/data.py": CYCLE.replace("ANNOUNCE", announce),
    }
    target = loads(FRAMEWORK, files)
    made = [one for one in dataloader.boundaries(target) if isinstance(one, Boundary)]
    return target, next(one for one in made if one.path == dataloader.CYCLE)


def test_each_sample_has_a_place(loads: Loads) -> None:
    """The order of the first epoch is a permutation of the samples."""
    target, boundary = _cycle(loads, ANNOUNCED)
    check_round_trips(target, [boundary])
    places = outputs_of(target, boundary, "shuffled", batch_of(torch.ones(6, 1, dtype=torch.bool)))
    assert sorted(places["place in the epoch"].tolist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("announce", "found"), [(ANNOUNCED, False), ("pass", True)])
def test_order_of_the_next_epoch(loads: Loads, announce: str, found: bool) -> None:
    """A sampler that never learns the number of the epoch repeats its order."""
    target, boundary = _cycle(loads, announce)
    check_verdict(CFG001, boundary, "shuffled", target, found=found)
