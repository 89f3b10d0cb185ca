"""TRL's worker of asynchronous GRPO, on a specimen of its two forms in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_data_specimen import DATASETS
from adapters.trl_specimen import filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, async_options, async_scoring
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.masking_differs_from_removal import LAW as MSK006
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class AsyncGRPOConfig:
        output_dir: str = ""
        use_cpu: bool = False
        bf16: bool = True
        report_to: object = None
        disable_tqdm: bool = False
        per_device_train_batch_size: int = 8
        max_inflight_tasks: int = -1
        temperature: float = 1.0
        max_completion_length: int = 256
        num_generations: int = 8
        chat_template_kwargs: object = None
"""

TRAINER = """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from .async_grpo_config import AsyncGRPOConfig
    from .async_rollout_worker import AsyncRolloutWorker

    class AsyncGRPOTrainer:
        def __init__(self, model, reward_funcs, args, train_dataset, processing_class=None):
            AutoModelForCausalLM.from_pretrained(model)
            self.rollout_worker = AsyncRolloutWorker(
                processing_class={tokenizer},
                dataset=train_dataset,
                reward_funcs=[reward_funcs],
                num_generations=args.num_generations,
                max_inflight_tasks=args.max_inflight_tasks,
                max_tokens=args.max_completion_length,
                temperature={temperature},
                chat_template_kwargs={template},
            )
"""

WORKER = """
    import asyncio
    from dataclasses import dataclass

    import numpy as np

    def parse_response(tokenizer, ids, prefix=None):
        raise RuntimeError("a template is parsed here")

    def add_response_schema(tokenizer):
        raise RuntimeError("a template is read here")

    @dataclass
    class RolloutGroup:
        prompt: list
        prompt_ids: {prompts}
        completions: list[list[dict]]
        completions_ids: list[list[int]]
        completions_logprobs: list[list[float]]
        tool_mask: list[list[int]]

    @dataclass
    class RolloutSample:
        completion: list[dict]
        input_ids: list[int]
        completion_mask: list[int]
        old_log_probs: list[float]
        advantage: float
        metrics: dict

    class Loop:
        def __init__(self, *, processing_class, dataset, reward_funcs, num_generations, max_inflight_tasks,
                     max_tokens, temperature, chat_template_kwargs, **shared):
            self.tokenizer, self.dataset, self.reward_funcs = processing_class, dataset, reward_funcs
            self.num_generations, self.slots = num_generations, max_inflight_tasks
            self.asked = {"max_tokens": max_tokens, "temperature": temperature}
            self.template = chat_template_kwargs or {}
            add_response_schema(self.tokenizer)

        async def _generate_loop(self, stop_event):
            rows = [row for row in self.dataset for _ in range(self.num_generations)]
            for row in rows[: self.slots]:
                ids = self.tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, **self.template)
                output = await self._post("/v1/completions", {"prompt": ids, **self.asked}, 1.0)
                parse_response(self.tokenizer, output["choices"][0]["token_ids"], prefix=ids)

        async def _score_group(self, group):
            found = [score(completions=group.completions, prompts=[group.prompt]) for score in self.reward_funcs]
            parts = np.array([[np.nan if one is None else one for one in row] for row in found])
            rewards = np.nansum(parts, axis=0)
            rewards[{unknown}] = np.nan
            known = ~np.isnan(rewards)
            advantages = np.zeros_like(rewards)
            own = rewards[known]
            advantages[known] = (own - own.mean()) / (own.std(ddof={lost}) + 1e-8)
            return [
                RolloutSample(
                    completion=completion,
                    input_ids=self.prompt(group, n) + group.completions_ids[n],
                    completion_mask=[0] * len(self.prompt(group, n)) + group.tool_mask[n],
                    old_log_probs=[0.0] * len(self.prompt(group, n)) + group.completions_logprobs[{logprobs}],
                    advantage=advantages[n],
                    metrics={"reward": float(rewards[n])},
                )
                for n, completion in list(enumerate(group.completions)){kept}
            ]

        def prompt(self, group, n):
            return group.prompt_ids[n] if isinstance(group.prompt_ids[0], list) else group.prompt_ids
"""

#: The form with a loop in a child process, and the form in which the worker is the loop.
FORMS = {
    "child": """
    class _AsyncRolloutLoop(Loop):
        pass

    class AsyncRolloutWorker:
        _loop_cls = _AsyncRolloutLoop

        def __init__(self, **options):
            self._loop_kwargs = options
""",
    "thread": """
    class AsyncRolloutWorker(Loop):
        def __init__(self, **options):
            self._wait_for_server_ready_sync()
            super().__init__(**options)

        def _wait_for_server_ready_sync(self):
            raise RuntimeError("a server is asked here")
""",
}

SOUND = {
    "tokenizer": "processing_class",
    "temperature": "args.temperature",
    "template": "args.chat_template_kwargs",
    "prompts": "list[int]",
    "unknown": "np.isnan(parts).all(0)",
    "lost": "0",
    "logprobs": "n",
    "kept": "",
}

TRANSFORMERS = """
    from types import SimpleNamespace

    LlamaConfig = SimpleNamespace

    class LlamaForCausalLM:
        def __init__(self, config):
            self.config = config

    class PreTrainedTokenizerFast:
        def __init__(self, tokenizer_object, chat_template, **special):
            self.words, self.chat_template = list(tokenizer_object.model), chat_template

        def apply_chat_template(self, messages, add_generation_prompt=False, added=None):
            template = self.chat_template
            first = template[4:].split(" ")[0] if template.startswith("{{") else "w28"
            return [self.words.index(word) for word in (first, messages[0]["content"], added or "w28")]

        def convert_ids_to_tokens(self, ids):
            return [self.words[n] for n in ids]

    class AutoTokenizer:
        pass

    class AutoModelForCausalLM:
        pass
"""


def _load(loads: Loads, form: str = "child", **choices: str) -> tuple[Target, dict[str, Boundary]]:
    folder, parts = "trl/experimental/async_grpo", SOUND | choices
    tree = {
        "trl/__init__.py": "",
        "trl/experimental/__init__.py": "",
        f"{folder}/__init__.py": "",
        f"{folder}/async_grpo_config.py": CONFIG,
        f"{folder}/async_grpo_trainer.py": filled(TRAINER, parts),
        f"{folder}/async_rollout_worker.py": filled(WORKER + FORMS[form], parts),
    }
    light = {**overlay(), "transformers.py": TRANSFORMERS, "datasets.py": DATASETS}
    target = loads(FRAMEWORK, tree, light)
    made = [one for module in (async_scoring, async_options) for one in module.boundaries(target)]
    return target, by_setting(made)


@pytest.mark.parametrize("form", FORMS)
def test_all_boundaries_answer_and_read_back(loads: Loads, form: str) -> None:
    """Both forms of the worker score, and send what the trainer is given."""
    target, boundaries = _load(loads, form)
    assert set(boundaries) == {"default", "some unscored", "samples", "requests"}
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [
        (REF001, "default", {"lost": "1"}),  # the deviation of a sample
        (MSK006, "some unscored", {"unknown": "[]"}),  # a completion without a reward has a reward of 0
        (DAT001, "samples", {"logprobs": "0"}),
        (DAT002, "samples", {"kept": "[1:]"}),
        (PLC004, "samples", {"kept": "[1:]"}),
        (CFG004, "requests", {"tokenizer": "AutoTokenizer.from_pretrained(model)"}),
        (CFG004, "requests", {"temperature": "1.0"}),
        (CFG004, "requests", {"template": "None"}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, broken: dict[str, str], *, sound: bool) -> None:
    """Each completion is one sample with its own columns, and only scored completions are compared."""
    target, boundaries = _load(loads, prompts="list[list[int]]", **({} if sound else broken))
    check_verdict(law, boundaries[setting], setting, target, found=not sound)
