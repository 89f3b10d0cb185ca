"""verl's sampled responses up to their end tokens, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of, the_bound
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, end_tokens
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

MASK = """
    import torch

    def get_response_mask(ids, end, dtype):
        ends = torch.isin(ids, torch.tensor(end))
        return (ends.cumsum(1) - ends.long() COMPARED).to(dtype)
"""

WORKER = """
    class ActorRolloutRefWorker:
        def generate_sequences(self, prompts):
            prompts = prompts.to("cpu")
            prompts.meta_info["eos_token_id"] = self.OWNER.eos_token_id
            with self.rollout_sharding_manager:
                return self.rollout.generate_sequences(self.rollout_sharding_manager.preprocess_data(prompts))
"""

SOUND = {"OWNER": "generation_config", "COMPARED": "== 0"}


def _load(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    mask, worker = MASK, WORKER
    for word, code in {**SOUND, **broken}.items():
        mask, worker = mask.replace(word, code), worker.replace(word, code)
    files = {"verl/utils/torch_functional.py": mask, "verl/workers/fsdp_workers.py": worker}
    target = loads(FRAMEWORK, files)
    boundary = the_bound(end_tokens.boundaries(target))
    return target, boundary


def test_by_hand(loads: Loads) -> None:
    """A worker that knows the end token of the tokenizer alone takes the other one and padding for tokens."""
    target, boundary = _load(loads, OWNER="tokenizer")
    check_round_trips(target, [boundary])
    batch = batch_of(torch.ones(2, 2, dtype=torch.bool), token=torch.tensor([[5, 6], [7, 8]]))
    assert outputs_of(target, boundary, "two end tokens", batch)["token"].tolist() == [[5, 6], [7, -1]]


@pytest.mark.parametrize("broken", [{"OWNER": "tokenizer"}, {"COMPARED": ">= 0"}, {"OWNER": "model_config.tokenizer"}])
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], found: bool) -> None:
    """An end token that the worker does not know, and padding that counts."""
    sound = {"OWNER": broken["OWNER"].replace("tokenizer", "generation_config")} if "OWNER" in broken else {}
    target, boundary = _load(loads, **(broken if found else sound))
    check_verdict(PLC004, boundary, "two end tokens", target, found=found)


def test_releases_without_a_mask(loads: Loads) -> None:
    """No boundary where no function finds the end of a response."""
    target = loads(FRAMEWORK, {"verl/workers/fsdp_workers.py": WORKER, "verl/utils/torch_functional.py": ""})
    assert list(end_tokens.boundaries(target)) == []
