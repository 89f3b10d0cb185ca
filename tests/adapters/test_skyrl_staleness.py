"""How far SkyRL's generation runs ahead, and its loader after a restart, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten
from rl_sentinel.adapters.skyrl import FRAMEWORK, staleness
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.version_miscounted import LAW as STA001

TRAINER = """
    import asyncio

    class _AsyncStalenessManager:
        def __init__(self, max_concurrent_generation_groups, mini_batch_size, max_staleness_steps):
            self.at_a_time, self.size = max_concurrent_generation_groups, mini_batch_size
            self.oldest = max_staleness_steps
            self.taken, self.running, self.step = 0, 0, 1
            self.changed = asyncio.Condition()

        def load_state_from_checkpoint(self, global_step):
            self.step, self.taken = global_step, RESTORED

        def room(self):
            return min(self.at_a_time - self.running, (self.oldest + self.step) * self.size - self.taken - self.running)

        async def acquire_submission_slot(self):
            async with self.changed:
                await self.changed.wait_for(lambda: self.room() > 0)
                self.running += 1

        async def on_rollout_accepted(self):
            self.running, self.taken = self.running - 1, self.taken + 1

        async def on_rollout_filtered(self):
            self.taken -= FILTERED

        async def notify_capacity_change(self, new_global_step):
            async with self.changed:
                self.step = new_global_step
                self.changed.notify_all()

    class _AsyncDataloader:
        def __init__(self, train_dataloader, mini_batch_size):
            self.loader, self.read, self.consumed = train_dataloader, iter(train_dataloader), set()

        def load_state_from_checkpoint(self, consumed):
            self.consumed = LOADED

        async def reset_at_epoch_end(self):
            self.read, self.consumed = iter(self.loader), set()

        async def get_next_non_consumed_data(self):
            return next((one for one in self.read if one[0]["uid"] not in self.consumed), None)

        async def mark_consumed_uids(self, uids):
            self.consumed |= set(uids)

        def get_consumed_uids_list(self):
            return sorted(self.consumed)
"""

SOUND = {"RESTORED": "(global_step - 1) * self.size", "FILTERED": "1", "LOADED": "consumed"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(TRAINER, SOUND | broken)
    target = loads(FRAMEWORK, {"skyrl/train/fully_async_trainer.py": source})
    made = [one for one in staleness.boundaries(target) if isinstance(one, Boundary)]
    return target, {one.path.rpartition(".")[2]: one for one in made}


def test_sound(loads: Loads) -> None:
    """Samples are admitted as far ahead as declared, and each prompt is drawn once per epoch."""
    target, found = _bound(loads)
    assert answering({(name, s): one for name, one in found.items() for s in one.settings}, target) == []
    for name, law in (("_AsyncStalenessManager", STA001), ("_AsyncDataloader", DAT002)):
        for setting in found[name].settings:
            check_verdict(law, found[name], setting, target, found=False)


@pytest.mark.parametrize(
    ("broken", "setting"),
    [({"RESTORED": "global_step * self.size"}, "on policy"), ({"FILTERED": "0"}, "some thrown away")],
)
def test_miscounted(loads: Loads, broken: dict[str, str], setting: str) -> None:
    """A restart that counts the update at work, and a sample that is thrown away and keeps its place."""
    target, found = _bound(loads, **broken)
    check_verdict(STA001, found["_AsyncStalenessManager"], setting, target, found=True)


def test_drawn_again(loads: Loads) -> None:
    """A restored loader that forgets what was consumed draws it again."""
    target, found = _bound(loads, LOADED="set()")
    check_verdict(DAT002, found["_AsyncDataloader"], "not restarted", target, found=False)
    check_verdict(DAT002, found["_AsyncDataloader"], "restarted", target, found=True)
