"""TRL's logged prompts where engines extend over ranks, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_inline_specimen import files, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, inline_logs
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

GRPO = """
    from collections import deque

    import torch
    from trl.trainer.grpo_scores import GRPOTrainer as Scores

    def gather_object(objects):
        return objects

    class GRPOTrainer(Scores):  # _metrics: {"train": defaultdict, "eval": defaultdict}
        def __init__(self, **parts):
            super().__init__(**parts)
            self.processing_class = self.tokenizer
            self._logs = {"prompt": deque(), "completion": deque()}

        def _generate_single_turn(self, prompts):
            texts, n = prompts, len(prompts)
            if self.vllm_mode == "server":
                completion_ids = self.vllm_client.generate(prompts=texts)
            else:
                of_ranks = [None] * self.vllm_tensor_parallel_size
                torch.distributed.all_gather_object(of_ranks, texts, group=self.tp_group)
                {asked} = [text for part in of_ranks for text in part]
                outputs = self.llm.generate({asked}, sampling_params=SamplingParams(n=1), use_tqdm=False)
                rows = [row.token_ids for output in outputs for row in output.outputs]
                place = n * torch.distributed.get_rank(group=self.tp_group)
                completion_ids = rows[place : place + n]
            self._logs["prompt"].extend(gather_object(texts))
            self._logs["completion"].extend(gather_object([" ".join(f"w{i - 3}" for i in ids) for ids in {logged}]))
            return {"completion_ids": completion_ids}
"""


def _bound(loads: Loads, asked: str = "everyone", logged: str = "completion_ids") -> tuple[Target, Boundary]:
    text = GRPO.replace("{asked}", asked).replace("{logged}", logged)
    target = loads(FRAMEWORK, {**files(), "trl/trainer/grpo_trainer.py": text}, overlay())
    return target, the_only(inline_logs.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"asked": "texts"}, True),  # the prompts of all ranks of the engine are logged on each of them
        ({"logged": "rows[:n]"}, True),  # the completions of the first rank
        ({"logged": "completion_ids[:0]"}, True),
    ],
)
def test_faults(loads: Loads, broken: dict[str, str], found: bool) -> None:
    target, boundary = _bound(loads, **broken)
    (setting,) = boundary.settings
    check_verdict(DAT001, boundary, setting, target, found=found)


def test_only_releases_that_log_prompts(loads: Loads) -> None:
    assert list(inline_logs.boundaries(loads(FRAMEWORK, files(), overlay()))) == []
