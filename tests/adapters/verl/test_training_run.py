"""verl's training loop over epochs, after a restore, and up to the update, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, judged_at
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, training_run, training_update
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.constant_group_amplified import LAW as DEG002
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.group_leaks_into_group import LAW as GRP002
from rl_sentinel.laws.resume_differs import LAW as RES001
from rl_sentinel.laws.row_order_matters import LAW as PRM001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

TORCHDATA = """
    import torch

    class StatefulDataLoader:
        def __init__(self, dataset, batch_size, collate_fn, sampler=None, **options):
            self.dataset, self.size, self.collate = dataset, batch_size, collate_fn
            self.epoch, self.place, self.shuffle = 0, 0, sampler

        def __len__(self):
            return len(self.dataset) // self.size

        def __iter__(self):
            order = list(range(len(self.dataset)))
            if self.shuffle is not None:
                order = torch.randperm(len(order), generator=torch.Generator().manual_seed(self.epoch)).tolist()
            for start in range(self.place * self.size, len(self) * self.size, self.size):
                self.place += 1
                yield self.collate([self.dataset[number] for number in order[start : start + self.size]])
            self.epoch, self.place = self.epoch + 1, 0

        def state_dict(self):
            return {"epoch": self.epoch, "place": self.place}

        def load_state_dict(self, state):
            self.epoch, self.place = state["epoch"], state["place"]
            if self.place == len(self):
                self.epoch, self.place = self.epoch + 1, 0
"""

TRACKING = """
    class Tracking:
        def __init__(self, **about):
            raise RuntimeError("no server")
"""

DATASET = """
    class RLHFDataset:
        def __getitem__(self, number):
            return {"dummy_tensor": number}
"""

TRAINER = """
    import os
    import uuid

    import numpy as np
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl.protocol import DataProto
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    class RayPPOTrainer:
        def _create_dataloader(self, train_dataset, val_dataset, collate_fn, train_sampler):
            data = self.config["data"]
            shuffled = "shuffled" if data["shuffle"] else None
            size = data["train_batch_size"]
            self.train_dataloader = StatefulDataLoader(
                dataset=train_dataset, batch_size=size, collate_fn=collate_fn, sampler=shuffled, num_workers=8
            )
            limit = self.config["trainer"]["total_training_steps"]
            self.total_training_steps = limit or len(self.train_dataloader) * self.config["trainer"]["total_epochs"]

        def _save_checkpoint(self):
            place = os.path.join(self.config["trainer"]["default_local_dir"], f"global_step_{self.global_steps}")
            os.makedirs(place, exist_ok=True)
            torch.save(self.train_dataloader.state_dict(), os.path.join(place, "data.pt"))

        def _load_checkpoint(self):
            folder = self.config["trainer"]["default_local_dir"]
            newest = os.path.join(folder, "latest_checkpointed_iteration.txt")
            if os.path.exists(newest):
                with open(newest) as opened:
                    self.global_steps = int(opened.read())
                place = os.path.join(folder, f"global_step_{self.global_steps}", "data.pt")
                RESTORE

        def fit(self):
            from omegaconf import OmegaConf
            from verl.utils.tracking import Tracking

            logger = Tracking(config=OmegaConf.to_container(self.config, resolve=True))
            self.global_steps = 0
            self._load_checkpoint()
            FIRST
            for epoch in range(EPOCH, self.config["trainer"]["total_epochs"]):
                for columns in self.train_dataloader:
                    if self.global_steps >= self.total_training_steps:
                        return
                    self.global_steps += 1
                    batch, uids = self._sample(columns)
                    if "response_mask" not in batch.batch.keys():
                        raise ValueError("rows without a mask")
                    BEFORE
                    self._update(batch, uids)
                    AFTER
                    if self.config["trainer"]["save_freq"] > 0:
                        self._save_checkpoint()
                    logger.log({"training/global_step": self.global_steps, "training/epoch": epoch}, self.global_steps)

        def _sample(self, columns):
            tensors = {"dummy_tensor": columns.pop("dummy_tensor")}
            n = self.config["actor_rollout_ref"]["rollout"]["n"]
            labels = {"raw_prompt": np.repeat(columns["raw_prompt"], n), "PROMPT_ID": np.repeat(columns["index"], n)}
            batch = self.async_rollout_manager.generate_sequences(DataProto.from_dict(tensors, labels))
            self._scored(batch)
            if self.config["algorithm"]["adv_estimator"] == "remax":
                greedy = DataProto.from_dict(tensors, labels, {"do_sample": False})
                answers = self.async_rollout_manager.generate_sequences(greedy)
                rewards = GREEDY
                batch.batch["reward_baselines"] = BASELINES
            return batch, UIDS

        def _scored(self, batch):
            if self.use_rm:
                batch.batch["rm_scores"] = self.rm_wg.compute_rm_score(batch).batch["rm_scores"]
            return batch.batch["rm_scores"]

        def _update(self, generated, uids):
            batch = generated.batch
            if "reward_baselines" in batch:
                score = batch["rm_scores"].flip(1).cumsum(1).flip(1)
                batch["returns"] = score * batch["response_mask"]
                batch["advantages"] = (score - batch["reward_baselines"].unsqueeze(1)) * batch["response_mask"]
                self.actor_rollout_wg.update_actor(generated)
                return
            batch["advantages"], batch["returns"] = compute_grpo_outcome_advantage(
                batch["rm_scores"], batch["response_mask"], uids
            )
            self.actor_rollout_wg.update_actor(generated)
"""

REMAX = """
    @register_adv_est("remax")
    def compute_remax_outcome_advantage(token_level_rewards, reward_baselines, response_mask):
        raise RuntimeError("the trainer computes it")
"""

#: Parts of the trainer, and what stands there before summer 2025: it makes the data set, and the rollout repeats rows.
EARLIER = {
    "self, train_dataset, val_dataset, collate_fn, train_sampler": "self",
    "dataset=train_dataset": "dataset=RLHFDataset(parquet_files='train.parquet')",
    "    class RayPPOTrainer:": (
        "    from verl.utils.dataset.rl_dataset import RLHFDataset\n    collate_fn = None\n\n    class RayPPOTrainer:"
    ),
    "self._sample(columns)": "self._sample(columns, lambda rows: self.async_rollout_manager.generate_sequences(rows))",
    "_sample(self, columns):": "_sample(self, columns, sample):",
    'np.repeat(columns["raw_prompt"], n)': 'columns["raw_prompt"]',
    'np.repeat(columns["index"], n)': 'columns["index"]',
    "self.async_rollout_manager.generate_sequences(DataProto.from_dict(tensors, labels))": (
        "sample(DataProto.from_dict(tensors, labels))"
    ),
}

RESTORED = "self.train_dataloader.load_state_dict(torch.load(place))"

#: Sends the weights to the rollout.
SENT = "self.checkpoint_manager.update_weights(self.global_steps)"

#: Where a loop sends the weights (before the first step, before each update, after it), and its first epoch.
SENDS = {
    "FIRST": SENT,
    "BEFORE": "pass",
    "AFTER": SENT,
    "EPOCH": "self.global_steps // len(self.train_dataloader)",
}


def _bound(
    loads: Loads,
    restore: str = RESTORED,
    uids: str = 'labels["PROMPT_ID"]',
    baselines: str = "rewards.sum(1)",
    greedy: str = "self._scored(answers)",
    **sends: str,
) -> tuple[Target, dict[str, Boundary]]:
    tree = files()
    trainer = TRAINER.replace("RESTORE", restore).replace("UIDS", uids).replace("BASELINES", baselines)
    trainer = trainer.replace("GREEDY", greedy)
    for place, code in (SENDS | sends).items():
        trainer = trainer.replace(place, code)
    tree["verl/trainer/ppo/core_algos.py"] += REMAX
    tree["verl/trainer/ppo/ray_trainer.py"] = trainer
    tree["verl/utils/tracking.py"] = TRACKING
    tree["verl/utils/dataset/rl_dataset.py"] = DATASET
    tree["verl/trainer/config/ppo_trainer.yaml"] = (
        '{"data": {}, "trainer": {"total_training_steps": null}, "algorithm": {}, "actor_rollout_ref": {"rollout": {}}}'
    )
    light = {"omegaconf.py": OMEGACONF, "torchdata/stateful_dataloader.py": TORCHDATA}
    target = loads(FRAMEWORK, tree, light)
    made = [one for module in (training_run, training_update) for one in module.boundaries(target)]
    assert all(isinstance(one, Boundary) for one in made), made
    return target, by_setting(made)


_WITH_MODEL = "update, remax, a reward model"


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    scored = ["update, grpo, a reward model", _WITH_MODEL]
    assert list(boundaries) == ["two epochs", "update, grpo", "update, gae", "update, remax", *scored]
    check_calls(target, boundaries.values())


def test_restored_position_is_sound(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    for law in (RES001, DAT002):
        check_verdict(law, boundaries["two epochs"], "two epochs", target, found=False)


@pytest.mark.parametrize(
    "restore",
    [
        "return",
        "self.train_dataloader.epoch = torch.load(place)['epoch']",
        RESTORED + "; self.global_steps = 0",
        "self.train_dataloader.load_state_dict({**torch.load(place), 'epoch': 0})",
    ],
)
def test_restore_found(loads: Loads, restore: str) -> None:
    """Nothing is restored, only the epoch is, the steps are counted anew, or the order is that of the first epoch."""
    target, boundaries = _bound(loads, restore)
    check_verdict(RES001, boundaries["two epochs"], "two epochs", target, found=True)


def test_epochs_that_are_counted_anew(loads: Loads) -> None:
    """The prompts are those of the second epoch, but they are logged as those of the first one."""
    target, boundaries = _bound(loads, EPOCH="0")
    found = judged_at(RES001, boundaries["two epochs"], "two epochs", target).found
    assert found is not None
    assert "logged epochs after a restart" in str(found)


def test_update_is_sound(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    for law in (DEG002, GRP002, PRM001):
        check_verdict(law, boundaries["update, grpo"], "update, grpo", target, found=False)


@pytest.mark.parametrize(
    ("uids", "sound"), [('np.repeat(labels["PROMPT_ID"], n)', True), ('np.tile(labels["PROMPT_ID"], n)', False)]
)
def test_loops_whose_rollout_repeats_the_prompts(loads: Loads, uids: str, sound: bool) -> None:
    """The trainer makes its data set, and repeats the prompts after sampling: in the order of the rows, or not."""
    target, boundaries = _bound(loads, uids=uids, baselines="rewards.sum(1).repeat_interleave(n)", **EARLIER)
    check_verdict(GRP002, boundaries["update, grpo"], "update, grpo", target, found=not sound)
    check_verdict(REF001, boundaries["update, remax"], "update, remax", target, found=False)
    check_verdict(RES001, boundaries["two epochs"], "two epochs", target, found=False)


def test_prompts_by_position_found(loads: Loads) -> None:
    """Responses are grouped across prompts."""
    target, boundaries = _bound(loads, uids='np.arange(len(labels["PROMPT_ID"])) % n')
    check_verdict(GRP002, boundaries["update, grpo"], "update, grpo", target, found=True)


@pytest.mark.parametrize("baselines", ["rewards.sum(1)", "rewards.sum(1).flip(0)", "rewards.sum(1) * 0"])
def test_greedy_rewards_of_other_prompts_found(loads: Loads, baselines: str) -> None:
    """Baselines of other prompts, or none, are found; those of the prompt's greedy response are sound."""
    target, boundaries = _bound(loads, baselines=baselines)
    check_verdict(REF001, boundaries["update, remax"], "update, remax", target, found=baselines != "rewards.sum(1)")


@pytest.mark.parametrize(("greedy", "sound"), [("self._scored(answers)", True), ("self.reward_fn(answers)", False)])
def test_baseline_without_the_reward_model_found(loads: Loads, greedy: str, sound: bool) -> None:
    """Responses are scored by a reward model, but the baseline by a reward function."""
    target, boundaries = _bound(loads, greedy=greedy)
    for setting, holds in (("update, remax", True), (_WITH_MODEL, sound)):
        check_verdict(REF001, boundaries[setting], setting, target, found=not holds)


@pytest.mark.parametrize(
    ("sends", "sound"),
    [
        ({}, True),
        ({"FIRST": "pass"}, False),  # the engine starts without the weights of a checkpoint
        ({"BEFORE": SENT, "AFTER": "pass"}, False),  # each step samples with the weights before the last update
        ({"AFTER": f"if self.global_steps % 2: {SENT}"}, False),
    ],
)
def test_weights_that_sample(loads: Loads, sends: dict[str, str], sound: bool) -> None:
    target, boundaries = _bound(loads, **sends)
    check_verdict(REF001, boundaries["two epochs"], "two epochs", target, found=not sound)


def test_release_whose_engine_takes_the_weights_itself(loads: Loads) -> None:
    """Where the loop sends no weights, nothing is said of them."""
    _, boundaries = _bound(loads, FIRST="pass", AFTER="pass")
    assert not any(name.startswith("updates behind") for name in boundaries["two epochs"].outputs)
