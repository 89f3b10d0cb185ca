"""Servers that get the weights when they wake up, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, woken_servers
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

MANAGER = """
    import asyncio
    import ray
    from verl.protocol import DataProto

    class AgentLoopManager:
        def generate_sequences(self, prompts):
            frees = self.config.actor_rollout_ref.rollout.free_cache_engine
            if CONDITION:
                self.wake_up()
            parts = prompts.chunk(len(self.agent_loop_workers))
            asked = [worker.generate_sequences.remote(part) for worker, part in zip(self.agent_loop_workers, parts)]
            answers = ray.get(asked)
            whole = DataProto.concat(answers)
            timing = self._performance_metrics([one.meta_info.pop("metrics") for one in answers], whole)
            whole.meta_info = {"timing": timing}
            return whole

        def wake_up(self):
            ACT
"""

ACTORS = "ray.get([server.wake_up.remote() for server in self.async_llm_servers])"
AWAITED = "[asyncio.run(server.wake_up()) for server in self.rollout_replicas]"


def _bound(loads: Loads, condition: str, act: str) -> tuple[Target, Boundary]:
    tree = {
        "verl/__init__.py": "",
        "verl/protocol.py": "class DataProto:\n    pass\n",
        "verl/experimental/agent_loop/agent_loop.py": MANAGER.replace("CONDITION", condition).replace("ACT", act),
    }
    target = loads(FRAMEWORK, tree)
    bound = the_bound(woken_servers.boundaries(target))
    return target, bound


@pytest.mark.parametrize("act", [ACTORS, AWAITED])
@pytest.mark.parametrize(
    ("law", "condition", "setting", "found"),
    [
        (PLC004, "True", "cache is kept", False),
        (CFG002, "True", "cache is freed", False),
        (PLC004, "frees", "cache is freed", False),
        (PLC004, "frees", "cache is kept", True),  # the weights of the start sample all steps
        (CFG002, "frees", "cache is freed", True),
    ],
)
def test_weights_of_each_step(  # noqa: PLR0913 - parametrised
    loads: Loads, act: str, law: Law, condition: str, setting: str, *, found: bool
) -> None:
    target, bound = _bound(loads, condition, act)
    check_round_trip(target, bound)
    check_verdict(law, bound, setting, target, found=found)


def test_a_release_whose_trainer_sends_the_weights(loads: Loads) -> None:
    manager = "class AgentLoopManager:\n    def generate_sequences(self): ...\n"
    target = loads(FRAMEWORK, {"verl/experimental/agent_loop/agent_loop.py": manager})
    assert list(woken_servers.boundaries(target)) == []
