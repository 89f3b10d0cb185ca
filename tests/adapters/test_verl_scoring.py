"""verl's reward managers, on specimens in words of our own, and what stands for the processes that they start."""

import asyncio
from types import ModuleType
from typing import Any

import pytest
import torch

from adapters.checks import Loads, answering, bound, check_verdict
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.reward_fakes import (
    SOURCE,
    SPECIAL,
    Text,
    Tokens,
    ground_truth,
    score,
    score_in_order,
    score_in_this_process,
)
from rl_sentinel.adapters.verl.rewards import GroundTruths
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Inputs, Sizes
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003

NAIVE = "verl/workers/reward_manager/naive.py"

PRIME = """
    import torch
    from concurrent.futures import ProcessPoolExecutor

    class PrimeRewardManager:
        def __init__(self, tokenizer, num_examine, compute_score=None, reward_fn_key="data_source"):
            self.compute_score, self.tokenizer, self.key = compute_score, tokenizer, reward_fn_key

        def __call__(self, data):
            rows, about = data.batch["responses"], data.non_tensor_batch["reward_model"]
            sources = data.non_tensor_batch[self.key]
            texts, right = self.tokenizer.batch_decode(rows), [x["ground_truth"] for x in about]
            with ProcessPoolExecutor(max_workers=64) as pool:
                found = list(pool.map(self.compute_score, sources, texts, right, [None] * len(texts)))
            out = torch.zeros_like(rows, dtype=torch.float32)
            for row, mask in enumerate(data.batch["attention_mask"][:, data.batch["prompts"].shape[1]:]):
                out[row, mask.sum() - 1] = found[row]
            return out
"""

DAPO = """
    class DAPORewardManager:
        def __init__(self, tokenizer, num_examine, compute_score, reward_fn_key, max_resp_len, overlong_buffer_cfg):
            buffer, limit = overlong_buffer_cfg.len, max_resp_len
            assert ACCEPTS, "the overlong buffer must be a part of the response"
"""

LOOP = """
    import asyncio

    class Base:
        def __init__(self, config, tokenizer):
            self.config, self.tokenizer, self.loop = config, tokenizer, asyncio.get_running_loop()

    class DAPORewardLoopManager(Base):
        def __init__(self, config, tokenizer, compute_score):
            super().__init__(config, tokenizer)
            about = config.reward_model["reward_kwargs"]
            self.score, self.buffer, self.limit = compute_score, about["overlong_buffer_cfg"], about["max_resp_len"]

        async def run_single(self, data):
            length = int(data.batch["attention_mask"][0, 1:].sum())
            words = self.tokenizer.decode(data.batch["responses"][0, :length])
            truth = data.non_tensor_batch["reward_model"][0]["ground_truth"]
            over = length - (self.limit - self.buffer["len"])
            penalty = min(-over / self.buffer["len"] * self.buffer["penalty_factor"], 0)
            return {"reward_score": self.score(solution_str=words, ground_truth=truth) + penalty}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("length[row] - 1]", "length[row] - 1]"),
        ("length[row] - 1]", "-1]"),
        ("length[row] - 1]", "length[row] - 2]"),
        ('["responses"][row, : length[row]]', '["responses"][row, : length[row] - 1]'),
    ],
)
def test_a_score_that_lands_elsewhere(loads: Loads, old: str, new: str) -> None:
    tree = files()
    assert old in tree[NAIVE]
    boundary = bound(FRAMEWORK, loads(FRAMEWORK, tree | {NAIVE: tree[NAIVE].replace(old, new)}))
    check_verdict(REF001, boundary["NaiveRewardManager", "default"], "default", found=old != new)


@pytest.mark.parametrize("prompt", ["", "data.batch['prompts'][row], "])
def test_the_text_of_a_prompt(loads: Loads, prompt: str) -> None:
    """A score of the prompt's text with the response gives an answer in the prompt to the response."""
    tree, words = files(), 'data.batch["responses"][row, : length[row]]'
    assert words in tree[NAIVE]
    tree |= {NAIVE: tree[NAIVE].replace(words, f"torch.cat([{prompt}{words}])")}
    boundary = bound(FRAMEWORK, loads(FRAMEWORK, tree))
    for setting, broken in (("default", False), ("prompts with text", bool(prompt))):
        check_verdict(REF001, boundary["NaiveRewardManager", setting], setting, found=broken)


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("passed", ["{}", 'data.non_tensor_batch["extra_info"][row]'])
def test_extra_information_of_a_row(loads: Loads, passed: str, takes: bool) -> None:
    """A manager must pass it on, in releases whose scoring functions take it."""
    tree = files()
    assert "extra_info={}" in tree[NAIVE]
    function = f"def default_compute_score(solution_str{', extra_info=None' if takes else ''}):\n    pass\n"
    tree |= {NAIVE: tree[NAIVE].replace("extra_info={}", f"extra_info={passed}")}
    target = loads(FRAMEWORK, tree | {"verl/utils/reward_score/__init__.py": function})
    check_verdict(
        REF001, bound(FRAMEWORK, target)["NaiveRewardManager", "default"], "default", found=takes and passed == "{}"
    )


@pytest.mark.parametrize("setting", ["", "data:\n  reward_fn_key: data_source\n"])
@pytest.mark.parametrize("key", ["self.key", '"data_source"'])
def test_a_manager_with_processes(loads: Loads, setting: str, key: str) -> None:
    """Where the column of the data source is a setting, the manager must read that column."""
    tree = files() | {"verl/workers/reward_manager/prime.py": PRIME.replace("self.key]", f"{key}]")}
    tree |= {"verl/trainer/config/data/legacy_data.yaml": setting} if setting else {}
    boundaries = {
        pair: b for pair, b in bound(FRAMEWORK, loads(FRAMEWORK, tree)).items() if pair[0].startswith("Prime")
    }
    assert answering(boundaries) == []
    check_verdict(
        REF001, boundaries["PrimeRewardManager", "default"], "default", found=(bool(setting) and key != "self.key")
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("[0, :length]", "[0, : length - 1]"),
        ("min(-over", "min(over"),
        ('self.limit - self.buffer["len"]', "self.limit"),
    ],
)
def test_a_manager_of_the_first_reward_loop(loads: Loads, old: str, new: str) -> None:
    """Its constructor takes the running loop, and the worker of the agent loop places its scores."""
    assert old in LOOP
    tree = files() | {"verl/experimental/reward/reward_loop/dapo.py": LOOP.replace(old, new)}
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    boundary = bound(FRAMEWORK, target)["DAPORewardLoopManager", "overlong"]
    check_verdict(REF001, boundary, "overlong", target, found=old != new)


@pytest.mark.parametrize(
    ("accepts", "sound"),
    [
        ("0 < buffer <= limit", True),
        ("buffer <= limit", False),
        ("0 < buffer", False),
        ("0 < buffer < limit", False),  # refuses the widest buffer, which is valid
    ],
)
def test_settings_of_the_overlong_penalty(loads: Loads, accepts: str, sound: bool) -> None:
    tree = files() | {"verl/workers/reward_manager/dapo.py": DAPO.replace("ACCEPTS", accepts)}
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    setting = "overlong buffer of the whole response"
    boundary = bound(FRAMEWORK, target)["DAPORewardManager", setting]
    check_verdict(CFG003, boundary, setting, target, found=not sound)


def test_a_worker_of_a_cluster() -> None:
    module: Any = ModuleType("remote")
    module.RewardComputeWorker = module.ray = None
    score_in_this_process(module)
    placed = module.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        node_id=module.ray.get_runtime_context().get_node_id(), soft=True
    )
    worker = module.RewardComputeWorker.options(scheduling_strategy=placed).remote(lambda **given: given["x"] + 1)

    async def answer() -> object:
        return await worker.compute_score.remote(x=2)

    assert asyncio.run(answer()) == 3


def test_what_a_text_is_worth() -> None:
    """The reward of the row, where all of its response and nothing else is scored."""
    right = ground_truth(0.5, torch.tensor([4, 7, SPECIAL]))
    assert Tokens().batch_decode(torch.tensor([[4, 7], [4, SPECIAL]])) == ["4 7", "4"]
    assert score(ground_truth=right, solution_str="4 7") == 0.5
    assert score(solution_strs=["4 7", "4"], ground_truths=[right, right]) == [0.5, 1.5]
    assert score(solution_strs=["4 7"], ground_truths=[right], data_sources=["another"]) == [1.5]
    informed = ground_truth(0.5, torch.tensor([4, 7]), informed=True)
    assert score(ground_truth=informed, solution_str="4 7", extra_info={"text": "4 7"}) == 0.5
    assert score(ground_truth=informed, solution_str="4 7") == 1.5
    assert score_in_order(SOURCE, "4", right) == score_in_order("another", "4 7", right) == 1.5


def test_what_a_data_set_says_of_a_batch() -> None:
    """Its texts have ids from 1 on, and each is worth the outcome."""
    mask = torch.ones(2, 2, dtype=torch.bool)
    token, length = torch.tensor([[3, -6], [0, 5]]), torch.tensor([2, 1])
    batch = batch_of(mask, token=token, length=length, reward=torch.tensor([0.5, 2.0]))
    responses = torch.tensor([[4, 7], [1, SPECIAL]])
    assert torch.equal(Text().lay_out(token, Inputs(batch)), responses)
    assert Text().read(responses, Sizes(width=2)).tolist() == [[3, 6], [0, 0]]
    truths = GroundTruths().put(Inputs(batch))
    assert [row["ground_truth"] for row in truths] == [{"text": "4 7", "reward": 0.5}, {"text": "1", "reward": 2.0}]
    assert GroundTruths().take(truths, Sizes())["reward"].tolist() == [0.5, 2.0]
