"""verl's data loaders, on a specimen in words of our own: epochs, and the position after a restore."""

import json

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, data_loader
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.laws.resume_differs import LAW as RES001

TRAINER = """
    import torch
    from torch.utils.data import RandomSampler
    from torchdata.stateful_dataloader import StatefulDataLoader

    from verl.utils.dataset.rl_dataset import RLHFDataset

    class RayPPOTrainer:
        def _create_dataloader(self):
            data = self.config.data
            self.train_dataset = RLHFDataset(data.train_files, data)
            order = torch.Generator()
            order.manual_seed(data.get("seed", 1))
            sampler = RandomSampler(self.train_dataset, generator=order) if data.shuffle else None
            LOADER
            self.val_dataloader = [list(range(len(RLHFDataset(data.val_files, data))))]
"""

#: A loader with a state, and one without.
SOUND = (
    "self.train_dataloader = StatefulDataLoader("
    "dataset=self.train_dataset, batch_size=data.train_batch_size, sampler=sampler)"
)
PLAIN = "self.train_dataloader = torch.utils.data.DataLoader(self.train_dataset, data.train_batch_size)"

STATEFUL = """
    class StatefulDataLoader:
        def __init__(self, dataset, batch_size, sampler, num_workers, collate_fn):
            self.dataset, self.size, self.sampler = dataset, batch_size, sampler
            self.state, self.skipped = None, 0

        def __len__(self):
            return len(self.dataset) // self.size

        def __iter__(self):
            generator = self.sampler.generator
            if self.skipped:
                generator.set_state(self.state)
            self.state = generator.get_state()
            order = list(self.sampler)
            skipped, self.skipped = self.skipped, 0
            for self.drawn in range(skipped + 1, len(self) + 1):
                yield order[(self.drawn - 1) * self.size : self.drawn * self.size]

        def state_dict(self):
            return {"state": self.state, "drawn": self.drawn}

        def load_state_dict(self, stored):
            RESTORE
"""

RESTORED = 'self.state, self.skipped = stored["state"], stored["drawn"]'

CONFIG = {"data": {"seed": 1, "shuffle": True, "train_batch_size": 2, "truncation": "error"}}


def _bound(loads: Loads, loader: str, restore: str) -> tuple[Target, list[Boundary | Unbound]]:
    tree = files() | {
        "verl/trainer/ppo/ray_trainer.py": rewritten(TRAINER, {"LOADER": loader}),
        "verl/utils/dataset/rl_dataset.py": "class RLHFDataset: pass",
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
    }
    stateful = rewritten(STATEFUL, {"RESTORE": restore})
    overlay = {"omegaconf/__init__.py": OMEGACONF, "torchdata/stateful_dataloader.py": stateful}
    target = loads(FRAMEWORK, tree, overlay)
    return target, list(data_loader.boundaries(target))


@pytest.mark.parametrize("restore", [RESTORED, "self.state = stored['state']"])
def test_position_after_a_restore(loads: Loads, restore: str) -> None:
    """A loader that forgets how many batches were drawn repeats them."""
    target, (boundary,) = _bound(loads, SOUND, restore)
    assert isinstance(boundary, Boundary)
    check_verdict(RES001, boundary, "shuffled", target, found=restore != RESTORED)


def test_loaders_without_a_state(loads: Loads) -> None:
    """A release whose loaders cannot be restored is not applicable, with the reason."""
    _, (unbound,) = _bound(loads, PLAIN, RESTORED)
    assert isinstance(unbound, Unbound)
    assert (unbound.path, unbound.absent) == (data_loader.PATH, True)
