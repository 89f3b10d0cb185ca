"""Scores of verl's agent loop and the values beside them, on a specimen of its workers in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from adapters.verl_specimen import files
from rl_sentinel.adapters.verl import FRAMEWORK, scored_rows
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

LOOP = """
    from types import SimpleNamespace

    import hydra
    import torch

    _agent_loop_registry = {}

    class AgentLoopOutput(SimpleNamespace):
        pass

    class RewardManagerWorker:
        ASYNC def compute_score(self, output):
            data = SimpleNamespace(batch={"responses": torch.tensor([output.response_ids])})
            found = self.reward_manager(data, True)
            return found["reward_tensor"].sum().item(), {name: rows[0] for name, rows in DETAILS.items()}

    class AgentLoopWorkerBase:
        async def _run_agent_loop(self, sampling_params, trajectory, *, agent_name):
            output = await hydra.utils.instantiate(config=_agent_loop_registry[agent_name]).run(sampling_params)
            output.score, output.details = await self.reward_manager_worker.compute_score.remote(output)
            return output

        def _postprocess(self, outputs):
            scores = torch.zeros(len(outputs), self.rollout_config.response_length)
            scores[:, -1] = torch.tensor([float(one.score) for one in outputs])
            names = outputs[0].details
            details = {name: [ROW.details[name] for one in outputs] for name in names}
            return SimpleNamespace(batch={"rm_scores": scores}, non_tensor_batch=details)
"""

SOUND = {"ASYNC": "", "DETAILS": 'found["reward_extra_info"]', "ROW": "one"}


@pytest.mark.parametrize(
    ("broken", "found"),
    [({}, False), ({"ASYNC": "async"}, False), ({"DETAILS": "{}"}, True), ({"ROW": "outputs[0]"}, True)],
    ids=["sound", "asynchronous", "left out", "of the first row"],
)
def test_values_beside_the_reward(loads: Loads, broken: dict[str, str], found: bool) -> None:
    source = rewritten(LOOP, SOUND | broken)
    target = loads(FRAMEWORK, files() | {"verl/experimental/agent_loop/agent_loop.py": source})
    bound = the_bound(scored_rows.boundaries(target))
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, "scored", target, found=found)
