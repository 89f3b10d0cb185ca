"""The loop of verl's v1 trainer over epochs and after a restore, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_training_run import TORCHDATA, TRACKING
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, queue_run
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.resume_differs import LAW as RES001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

BASE = """
    import os

    import torch
    import transfer_queue as tq
    from torchdata.stateful_dataloader import StatefulDataLoader
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.utils import create_rl_dataset
    from verl.utils.dataset.rl_dataset import collate_fn
    from verl.utils.tracking import Tracking

    class PPOTrainer:
        def _init_dataloader(self):
            data, trainer = self.config["data"], self.config["trainer"]
            self.train_dataloader = StatefulDataLoader(
                dataset=create_rl_dataset(data["train_files"], data),
                batch_size=data["train_batch_size"],
                collate_fn=collate_fn,
                sampler="shuffled" if data["shuffle"] else None,
            )
            self.ahead = None
            steps = len(self.train_dataloader) * trainer["total_epochs"]
            self.total_training_steps = trainer["total_training_steps"] or steps

        def place(self, name):
            return os.path.join(self.config["trainer"]["default_local_dir"], name)

        def _load_checkpoint(self):
            self.global_steps, newest = 0, self.place("latest_checkpointed_iteration.txt")
            if os.path.exists(newest):
                with open(newest) as opened:
                    self.global_steps = int(opened.read())
                state = torch.load(os.path.join(self.place(f"global_step_{self.global_steps}"), "data.pt"))
                RESTORE

        def _save_checkpoint(self):
            place = self.place(f"global_step_{self.global_steps}")
            os.makedirs(place)
            torch.save(self.train_dataloader.state_dict(), os.path.join(place, "data.pt"))

        def _next(self):
            if self.ahead is None:
                self.ahead = iter(self.train_dataloader)
            try:
                return next(self.ahead)
            except StopIteration:
                self.ahead = iter(self.train_dataloader)
                return next(self.ahead)

        def fit(self, agent_loop_manager):
            logger = Tracking(config=None)
            while self.global_steps < self.total_training_steps:
                self.global_steps += 1
                agent_loop_manager.generate_sequences(self._next())
                tq.kv_batch_put(keys=["row"])
                batch, _ = self.replay_buffer.sample(batch_size=2)
                batch = self._compute_advantage(self._balance_batch(batch, metrics={}), metrics={})
                batch = self._update_actor(KVBatchMeta(batch.keys), metrics={})
                self._save_checkpoint()
                self.on_step_end()
                self._compute_metrics(batch, {}, {})
                logger.log(data={}, step=self.global_steps)
            self._shutdown_dump_executor()
"""

SYNC = """
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    class PPOTrainerSync(PPOTrainer):
        def on_init_end(self):
            self.checkpoint_manager.update_weights(self.global_steps)

        def on_step_end(self):
            ENDS
"""

SOUND = {
    "RESTORE": "self.train_dataloader.load_state_dict(state)",
    "ENDS": "self.checkpoint_manager.update_weights(self.global_steps)",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    tree = files()
    base, sync = BASE, SYNC
    for word, code in (SOUND | broken).items():
        base, sync = base.replace(word, code), sync.replace(word, code)
    tree["verl/trainer/ppo/v1/trainer_base.py"], tree["verl/trainer/ppo/v1/trainer_sync.py"] = base, sync
    tree["verl/trainer/ppo/utils.py"] = "def create_rl_dataset(*about):\n    raise RuntimeError('no files')\n"
    tree["verl/utils/dataset/rl_dataset.py"] = "def collate_fn(rows):\n    raise RuntimeError('no rows')\n"
    tree["verl/utils/tracking.py"] = TRACKING
    tree["verl/trainer/config/ppo_trainer.yaml"] = (
        '{"data": {}, "trainer": {"total_training_steps": null}, "algorithm": {}, "actor_rollout_ref": {"rollout": {}}}'
    )
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF, "torchdata/stateful_dataloader.py": TORCHDATA})
    return target, the_only(queue_run.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    for law in (RES001, DAT002, REF001):
        check_verdict(law, boundary, "two epochs", target, found=False)


@pytest.mark.parametrize("restore", ["pass", "self.train_dataloader.load_state_dict({**state, 'epoch': 0})"])
def test_lost_position(loads: Loads, restore: str) -> None:
    target, boundary = _bound(loads, RESTORE=restore)
    check_verdict(RES001, boundary, "two epochs", target, found=True)


def test_weights_that_are_not_sent(loads: Loads) -> None:
    target, boundary = _bound(loads, ENDS="pass")
    check_verdict(REF001, boundary, "two epochs", target, found=True)
