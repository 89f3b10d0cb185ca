"""The score of a trajectory of verl's agent loop, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_bound
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, trajectory_scores
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

WORKER = """
    from types import SimpleNamespace

    import numpy as np
    from torch import ones, tensor
    from torch.nn.utils.rnn import pad_sequence
    from verl import DataProto

    def simple_timer(name, timings):
        raise RuntimeError(name)

    class AgentLoopOutput(SimpleNamespace):
        reward_score = None

    class AgentLoopWorker:
        async def _compute_score(self, outputs, kwargs):
            def padded(rows):
                return pad_sequence(rows, batch_first=True)

            prompts = [tensor(one.prompt_ids) for one in outputs]
            responses = [tensor(one.response_ids) for one in outputs]
            masks = [ones(len(p) + len(r)) for p, r in zip(prompts, responses)]
            batch = {"responses": padded(responses), "attention_mask": padded(masks)}
            labels = {name: np.array([value] * len(outputs), dtype=object) for name, value in kwargs.items()}
            labels["length"] = np.array([len(r) for r in responses])
            with simple_timer("score", {}):
                data = DataProto.from_dict(batch, labels)
                result = await self.reward_loop_worker_handles[0].compute_score.remote(data)
            outputs[-1].reward_score = result["reward_score"]
"""

MANAGER = """
    class NaiveRewardManager:
        def __init__(self, config, tokenizer, compute_score):
            self.tokenizer, self.compute_score = tokenizer, compute_score

        async def run_single(self, data):
            ids, about = data.batch["responses"], data.non_tensor_batch
            mask = data.batch["attention_mask"]
            length = LENGTH
            text = self.tokenizer.decode(ids[LAST, :length])
            truth = about["reward_model"][LAST]["ground_truth"]
            return {"reward_score": self.compute_score(solution_str=text, ground_truth=truth)}
"""

LENGTHS, MASK = "about['length'][LAST]", "int(mask[LAST, -ids.shape[1]:].sum())"


def _bound(loads: Loads, length: str, last: str) -> tuple[Target, Boundary]:
    manager = MANAGER.replace("LENGTH", length).replace("LAST", last)
    tree = {
        "verl/experimental/agent_loop/agent_loop.py": WORKER,
        "verl/experimental/reward_loop/reward_manager/naive.py": manager,
    }
    target = loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})
    boundary = the_bound(trajectory_scores.boundaries(target))
    return target, boundary


def test_reads_back(loads: Loads) -> None:
    """Both settings answer, and their calls are read back."""
    target, boundary = _bound(loads, LENGTHS, "-1")
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("setting", "length", "last", "found"),
    [
        ("one output", LENGTHS, "-1", False),
        ("one output", MASK, "-1", False),
        ("two outputs", LENGTHS, "-1", False),
        ("two outputs", MASK, "-1", True),  # the mask is aligned with the padded sequences of prompt and response
        ("two outputs", LENGTHS, "0", True),  # the first output is scored
    ],
)
def test_scored_text(loads: Loads, setting: str, length: str, last: str, *, found: bool) -> None:
    target, boundary = _bound(loads, length, last)
    check_verdict(PLC004, boundary, setting, target, found=found)
