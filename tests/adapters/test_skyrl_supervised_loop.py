"""SkyRL's loop of supervised fine-tuning, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, check_verdict, outputs_of, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.supervised_loop import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006
from rl_sentinel.laws.resume_differs import LAW as RES001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

CONFIG = """
    class SFTConfig:
        def __init__(self):
            self.num_epochs, self.num_steps, self.eval_interval, self.eval_before_train = 1, None, 0, False
            self.async_batch_collation = True
"""

TRAINER = """
    class SFTTrainer:
        def __init__(self):
            raise OSError

        def train(self):
            rows = self.load_dataset()
            self.eval_dataloaders = [self.build_eval_dataloader(held) for _, held in self.load_eval_datasets()]
            self.train_dataloader = self.build_train_dataloader(rows)
            self.global_step = self.load_checkpoint()
            scores, _ = self.run_eval()
            self.tracker.log({f"eval/{name}": score for name, score in scores.items()}, step=self.global_step)
            batches = iter(self.train_dataloader)
            waiting = next(batches, None) if self.sft_cfg.async_batch_collation else None
            most = self.sft_cfg.num_epochs * len(self.train_dataloader)
            self.global_step += 1
            while self.global_step <= most:
                batch = WAITING
                if batch is None:
                    batches = iter(self.train_dataloader)
                    batch = next(batches)
                waiting = None
                if self.sft_cfg.async_batch_collation and self.global_step < most:
                    waiting = next(batches, None)
                numbers = {"train/loss": self.train_step(batch, self.global_step)["loss"]}
                scores, _ = self.run_eval()
                numbers.update({f"eval/{name}": score for name, score in scores.items()})
                self.tracker.log(numbers, step=LOGGED)
                self.global_step += 1
"""

SOUND = {"WAITING": "waiting or next(batches, None)", "LOGGED": "self.global_step"}

SETTINGS = ("2 epochs, batches in turn", "2 epochs, batches ahead")


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(TRAINER, SOUND | broken)
    target = loads(FRAMEWORK, {"skyrl/train/config/sft_config.py": CONFIG, "skyrl/train/sft_trainer.py": source})
    boundary = the_bound(boundaries(target))
    return target, boundary


@pytest.mark.parametrize("setting", SETTINGS)
def test_by_hand(loads: Loads, setting: str) -> None:
    """Three rows, each trained once an epoch, also if the run stops after the first one of the second epoch."""
    target, boundary = _bound(loads)
    assert tuple(boundary.settings) == SETTINGS
    check_round_trip(target, boundary)
    assert answering({("loop", setting): boundary}, target) == []
    values = outputs_of(target, boundary, setting, batch_of(torch.ones(3, 1, dtype=torch.bool)))
    assert values["uses without a restart"].tolist() == values["uses with a restart"].tolist() == [1, 1, 1]
    assert values["numbers at another step"].item() == 0


@pytest.mark.parametrize(
    ("law", "setting", "broken", "found"),
    [
        *((law, setting, {}, False) for law in (RES001, DAT002, MET006) for setting in SETTINGS),
        (DAT002, SETTINGS[0], {"WAITING": "next(batches, None)"}, False),
        (DAT002, SETTINGS[1], {"WAITING": "next(batches, None)"}, True),
        (MET006, SETTINGS[0], {"LOGGED": "self.global_step - 1"}, True),
    ],
)
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """A batch that is drawn ahead and lost, and numbers that are logged a step early."""
    target, boundary = _bound(loads, **broken)
    check_verdict(law, boundary, setting, target, found=found)
