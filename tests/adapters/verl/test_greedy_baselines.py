"""verl's greedy baseline between the trainer's mark and the engine's options, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.test_rollout_servers import CONFIG, OUTPUT, SOUND, VLLM
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, greedy_baselines
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

WORKER = """
    class AgentLoopWorker:
        async def generate_sequences(self, batch):
            marks = READ
            temperatures = [self.rollout_config.temperature if sampled else 0.0 for sampled in marks]
            return [await self._run_agent_loop({"temperature": x}, 0) for x in temperatures]
"""

TRAINER = """
    class RayPPOTrainer:
        def fit(self, batch):
            MARKED
"""

SETTING = "options, greedy baseline"

#: What the trainer writes, and how a worker reads it.
COLUMN = ('batch.non_tensor_batch["__do_sample__"] = [False]', 'batch.non_tensor_batch["__do_sample__"]')
META = ('batch.meta_info["do_sample"] = False', '[batch.meta_info["do_sample"]]')


def _bound(loads: Loads, marked: str, read: str) -> tuple[Target, list[Boundary]]:
    server = rewritten(VLLM, SOUND)
    files = {
        "verl/workers/config/__init__.py": CONFIG,
        "verl/experimental/agent_loop/agent_loop.py": WORKER.replace("READ", read),
        "verl/workers/rollout/replica.py": OUTPUT,
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py": server,
        "verl/trainer/ppo/ray_trainer.py": TRAINER.replace("MARKED", marked),
    }
    target = loads(FRAMEWORK, files)
    return target, [b for b in greedy_baselines.boundaries(target) if isinstance(b, Boundary)]


@pytest.mark.parametrize(("marked", "read"), [COLUMN, META], ids=["a column", "meta info"])
def test_the_mark_is_read(loads: Loads, marked: str, read: str) -> None:
    target, (found,) = _bound(loads, marked, read)
    check_verdict(CFG004, found, SETTING, target, found=False)


@pytest.mark.parametrize("marked", [COLUMN[0], META[0]], ids=["a column", "meta info"])
def test_the_mark_is_ignored(loads: Loads, marked: str) -> None:
    target, (found,) = _bound(loads, marked, "[True]")
    check_verdict(CFG004, found, SETTING, target, found=True)


def test_a_trainer_without_a_baseline(loads: Loads) -> None:
    assert _bound(loads, "pass", "[True]")[1] == []


def test_round_trip(loads: Loads) -> None:
    target, found = _bound(loads, *COLUMN)
    check_round_trips(target, found)
