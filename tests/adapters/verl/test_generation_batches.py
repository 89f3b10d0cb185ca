"""The prompts that verl's loader draws at a time, on specimens of its trainer in words of our own."""

import json

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, generation_batches
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

TRAINER = """
    from torchdata.stateful_dataloader import StatefulDataLoader

    class RLHFDataset(list):
        pass

    class RayPPOTrainer:
        def _create_dataloader(self):
            data = self.config.data
            prompts = RLHFDataset(parquet_files=data.train_files, truncation=data.truncation)
            self.train_dataloader = StatefulDataLoader(dataset=prompts, batch_size=DRAWN, num_workers=8)
"""

#: A loader with the parameters of torchdata's.
TORCHDATA = """
    class StatefulDataLoader:
        def __init__(self, dataset, batch_size, num_workers, collate_fn):
            self.rows, self.size, self.collate = dataset, batch_size, collate_fn

        def __iter__(self):
            for start in range(0, len(self.rows), self.size):
                yield self.collate([self.rows[n] for n in range(start, start + self.size)])
"""

SOUND = 'data.get("gen_batch_size", None) or data.train_batch_size'

IGNORED = "data.train_batch_size"


def _bound(loads: Loads, drawn: str, *, offered: bool = True) -> tuple[Target, list[Boundary]]:
    tree = files() | {"verl/trainer/ppo/ray_trainer.py": TRAINER.replace("DRAWN", drawn)}
    tree["verl/trainer/config/ppo_trainer.yaml"] = json.dumps({"data": {"truncation": "error"}})
    if offered:
        tree["verl/trainer/config/ppo_megatron_trainer.yaml"] = "data:\n  gen_batch_size: null\n"
    light = {"omegaconf/__init__.py": OMEGACONF, "torchdata/stateful_dataloader.py": TORCHDATA}
    target = loads(FRAMEWORK, tree, {**light, "torchdata/__init__.py": ""})
    return target, [b for b in generation_batches.boundaries(target) if isinstance(b, Boundary)]


def test_reads_back(loads: Loads) -> None:
    """Settings and arguments survive the round trip."""
    target, found = _bound(loads, SOUND)
    assert len(found) == 1
    check_round_trips(target, found)


@pytest.mark.parametrize("drawn", [SOUND, IGNORED])
def test_batch_of_generation_that_is_ignored(loads: Loads, drawn: str) -> None:
    """The loader draws the prompts of an update at a time."""
    target, (boundary,) = _bound(loads, drawn)
    check_verdict(CFG004, boundary, "prompts drawn at a time", target, found=drawn == IGNORED)


def test_releases_without_the_setting(loads: Loads) -> None:
    """Have no such boundary."""
    assert not _bound(loads, IGNORED, offered=False)[1]
