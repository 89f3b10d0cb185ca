"""SkyRL's loops over several epochs, on specimens of their call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, check_verdict, outputs_of, rewritten
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.loop_steps import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006
from rl_sentinel.laws.resume_differs import LAW as RES001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        names = "epochs eval_interval eval_before_train ckpt_interval hf_save_interval"
        placement = SimpleNamespace(colocate_all=True)
        return SimpleNamespace(trainer=SimpleNamespace(placement=placement, **{name: 1 for name in names.split()}))
"""

TRAINER = """
    from enum import Enum

    class ResumeMode(Enum):
        NONE, LATEST = "none", "latest"

    class RayPPOTrainer:
        def __init__(self):
            raise OSError

        async def evaluated(self):
            self.all_metrics.update(await self.eval())

        async def train(self):
            if self.resume_mode != ResumeMode.NONE:
                self.global_step, _ = self.load_checkpoints()
            self.tracker.log(await self.eval(), step=self.global_step, commit=True)
            first = FIRST
            self.global_step += 1
            for epoch in range(first, self.cfg.trainer.epochs):
                for prompts in self.train_dataloader:
                    output = await self.generate(prompts)
                    generator_output, uids = self.postprocess_generator_output(output, UIDS)
                    self.train_critic_and_policy(self.convert_to_training_input(generator_output, uids))
                    BEFORE
                    self.tracker.log(self.all_metrics, step=STEP, commit=True)
                    self.all_metrics = {}
                    AFTER
                    self.global_step += 1
            self.tracker.finish()
"""

#: The loader repeats a prompt that it has dealt if MARKED is another name.
ASYNC = """
    import asyncio
    from skyrl.train.trainer import ResumeMode, RayPPOTrainer
    from types import SimpleNamespace

    class _AsyncDataloader:
        def __init__(self, loader, size):
            self.loader, self.dealt = loader, set()

    class _AsyncStalenessManager:
        def __init__(self, max_concurrent_generation_groups, mini_batch_size, max_staleness_steps):
            self.size = mini_batch_size

    class FullyAsyncRayPPOTrainer(RayPPOTrainer):
        async def train(self):
            assert self.resume_mode != ResumeMode.NONE
            self.global_step, _, consumed, filtered, loaded_epoch = self.load_checkpoints()
            self.async_train_dataloader.dealt = consumed
            self.tracker.log(await self.eval(), step=self.global_step)
            self.global_step += 1
            for epoch in range(loaded_epoch, self.cfg.trainer.epochs):
                for prompts in iter(self.train_dataloader.__class__(self.num_steps_per_epoch)):
                    if MARKED in self.async_train_dataloader.dealt:
                        continue
                    group = SimpleNamespace(uid=prompts[0]["uid"])
                    await self._run_training(self.convert_generation_group_mini_batch_to_training_input([group]))
                    await self.evaluated()
                    self.tracker.log(self.all_metrics, step=self.global_step)
                    self.all_metrics = {}
                    self.global_step += 1
                self.async_train_dataloader.dealt = set()
"""

SOUND = {
    "UIDS": '[one["uid"] for one in prompts]',
    "FIRST": "self.global_step // len(self.train_dataloader)",
    "BEFORE": "await self.evaluated()",
    "STEP": "self.global_step",
    "AFTER": "pass",
    "MARKED": "prompts[0]['uid']",
}

SYNC, ASYNCHRONOUS = "trainer.RayPPOTrainer.train", "fully_async_trainer.FullyAsyncRayPPOTrainer.train"


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    sources = {"config.py": CONFIG, "trainer.py": TRAINER, "fully_async_trainer.py": ASYNC}
    sources = {name: rewritten(text, SOUND | broken) for name, text in sources.items()}
    target = loads(FRAMEWORK, {f"skyrl/train/{name}": text for name, text in sources.items()})
    made = [one for one in boundaries(target) if isinstance(one, Boundary)]
    return target, {one.path.removeprefix("skyrl.train."): one for one in made}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, found = _bound(loads)
    assert list(found) == [SYNC, ASYNCHRONOUS]
    check_calls(target, found.values())


@pytest.mark.parametrize("path", [SYNC, ASYNCHRONOUS])
def test_by_hand(loads: Loads, path: str) -> None:
    """Three prompts, each trained once an epoch, also if the run stops after the first one of the second epoch."""
    target, found = _bound(loads)
    values = outputs_of(target, found[path], "2 epochs", batch_of(torch.ones(3, 1, dtype=torch.bool)))
    assert values["uses without a restart"].tolist() == values["uses with a restart"].tolist() == [1, 1, 1]
    assert values["numbers at another step"].item() == 0


@pytest.mark.parametrize(
    ("law", "path", "broken", "found"),
    [
        (RES001, SYNC, {}, False),
        (RES001, ASYNCHRONOUS, {}, False),
        (DAT002, SYNC, {}, False),
        (MET006, SYNC, {}, False),
        (MET006, ASYNCHRONOUS, {}, False),
        (RES001, SYNC, {"FIRST": "0"}, True),
        (RES001, SYNC, {"UIDS": '["4e4c45e0-5701" for one in prompts]'}, False),
        (DAT002, SYNC, {"UIDS": '["4e4c45e0-5701" for one in prompts]'}, False),
        (RES001, SYNC, {"UIDS": '["4e4c45e0-5701" for one in prompts]', "FIRST": "0"}, True),
        (RES001, ASYNCHRONOUS, {"MARKED": "None"}, True),
        (MET006, SYNC, {"BEFORE": "pass", "AFTER": "await self.evaluated()"}, True),
        (MET006, SYNC, {"STEP": "self.global_step - 1"}, True),
        (DAT002, SYNC, {"FIRST": "1"}, True),
    ],
)
def test_found_where_broken_alone(loads: Loads, law: Law, path: str, broken: dict[str, str], found: bool) -> None:
    """Epochs that start again, prompts that are dealt again, scores logged with the next step, and a lost epoch."""
    target, bound = _bound(loads, **broken)
    check_verdict(law, bound[path], "2 epochs", target, found=found)


def test_release_that_wakes_its_engines_itself(loads: Loads) -> None:
    """What wakes them is a fake."""
    wakes = "InferenceWeightsManager(self.policy_model).update_condition(True); await self.evaluated()"
    managers = "class InferenceWeightsManager: __init__ = None\n\n    class RayPPOTrainer:"
    target, found = _bound(loads, BEFORE=wakes, **{"class RayPPOTrainer:": managers})
    assert answering({("train", "2 epochs"): found[SYNC]}, target) == []


def test_release_that_sends_the_weights_in_steps(loads: Loads) -> None:
    """The dispatch that sends them is a fake."""
    sends = "self.dispatch.prepare_for_weight_sync(); self.dispatch.finish_weight_sync()"
    target, found = _bound(loads, AFTER=sends)
    assert answering({("train", "2 epochs"): found[SYNC]}, target) == []
