"""TRL's online DPO with vLLM, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.test_trl_online_dpo import CONFIG
from adapters.trl_inline_specimen import CLIENT, TOKENIZER, TOKENIZERS
from adapters.trl_pairs_specimen import TRANSFORMERS, filled
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, online_dpo_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

TRAINER = """
    from types import SimpleNamespace

    import torch

    def gather_object(objects):
        return objects

    def broadcast_object_list(objects, from_process):
        return objects

    class OnlineDPOTrainer:
        def __init__(self, model, ref_model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.ref_model, self.reward_funcs, self.args = model, ref_model, [reward_funcs], args
            self.accelerator = SimpleNamespace(gradient_accumulation_steps=1)
            self.processing_class, self.state = processing_class, SimpleNamespace(global_step=0)

        def _generate_vllm(self, prompts):
            ask = self._generate_vllm_server if self.vllm_mode == "server" else self._generate_vllm_colocate
            completions, prompt_ids = ask(prompts)
            prompt_ids, prompt_mask = self._padded(prompt_ids, left=True)
            completion_ids, completion_mask = self._padded(completions, left=False)
            return prompt_ids, prompt_mask, completion_ids, completion_mask

        def _padded(self, rows, left):
            gaps = [[0] * (max(map(len, rows)) - len(row)) for row in rows]
            ids = [gap + row if left else row + gap for gap, row in zip(gaps, rows)]
            mask = [gap + [1] * len(row) if left else [1] * len(row) + gap for gap, row in zip(gaps, rows)]
            return torch.tensor(ids), torch.tensor(mask)

        def _generate_vllm_server(self, prompts):
            everyone, rank = gather_object(prompts), self.accelerator.process_index
            rows = [None] * (2 * len(everyone))
            if self.accelerator.is_main_process:
                rows = self.vllm_client.generate(prompts=everyone, n=2)["completion_ids"]
            rows = broadcast_object_list(rows, from_process=0)[2 * rank * len(prompts) :][: 2 * len(prompts)]
            ids = [self.processing_class(text, add_special_tokens=False)["input_ids"] for text in prompts]
            longest = max(map(len, ids))
            return {order}, 2 * {padded}

        def _generate_vllm_colocate(self, prompts):
            outputs = self.llm.generate(prompts, self.generation_config, use_tqdm=False)
            rows = [list(one.outputs[n].token_ids) for n in range(2) for one in outputs]
            return rows, [list(one.prompt_token_ids) for n in range(2) for one in outputs]
"""

SOUND = {"order": "rows[0::2] + rows[1::2]", "padded": "ids"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    tree = {"trl/__init__.py": "", "trl/trainer/online_dpo_config.py": CONFIG}
    tree |= {"trl/extras/__init__.py": "", "trl/extras/vllm_client.py": CLIENT}
    libraries = {"transformers.py": TRANSFORMERS + TOKENIZER, "tokenizers.py": TOKENIZERS}
    source = filled(TRAINER, {**SOUND, **broken})
    files = {**tree, "trl/trainer/online_dpo_trainer.py": source}
    target = loads(FRAMEWORK, files, {**overlay(), **libraries})
    return target, by_setting(online_dpo_rows.boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    """The rows of both engines, with prompts of one length and of several."""
    target, boundaries = _bound(loads)
    names = ("rows", "prompts of several lengths")
    assert set(boundaries) == {f"{name}, {engine}" for name in names for engine in ("server", "colocate")}
    check_calls(target, boundaries.values())


CASES = [
    ("rows, server", {"order": "rows"}),
    ("prompts of several lengths, server", {"padded": "[[0] * (longest - len(row)) + row for row in ids]"}),
]


@pytest.mark.parametrize(("setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Completions beside the prompt of others, and padding that counts as a part of the prompt."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(DAT001, boundaries[setting], setting, target, found=found)
