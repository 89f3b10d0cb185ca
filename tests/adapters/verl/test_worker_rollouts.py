"""Workers that sample with an engine of their own, on specimens in words of our own."""

import json

import pytest

from adapters.checks import Loads, judged_at, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, worker_rollouts
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.law import Law
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

PROTOCOL = """
    class Rows(dict):
        @property
        def batch_size(self):
            return next(iter(self.values())).shape[:1]

    class DataProto:
        def __init__(self, batch, non_tensor_batch, meta_info):
            self.batch, self.non_tensor_batch, self.meta_info = Rows(batch), non_tensor_batch, meta_info

        @classmethod
        def from_dict(cls, tensors, non_tensors=None, meta_info=None):
            return cls(tensors, non_tensors or {}, meta_info or {})
"""

ROWS = """
    import torch

    def assemble(prompts, responses, ends, times):
        columns = [prompts.batch[name].repeat_interleave(times, 0) for name in COLUMNS]
        ids, mask, positions = columns
        done = (responses == ends).cumsum(1)
        kept = (done - (responses == ends).long() * LAST == 0).long()
        following = positions[:, -1:] + torch.arange(1, responses.shape[1] + 1)
        return {
            "input_ids": torch.cat([ids, responses], 1),
            "responses": responses,
            "attention_mask": torch.cat([mask, kept], 1),
            "position_ids": torch.cat([positions, following], 1),
        }

    COLUMNS = ("input_ids", "attention_mask", "position_ids")
"""

VLLM = """
    import importlib.metadata
    import torch
    from vllm import LLM, SamplingParams
    from verl import DataProto
    from verl.rows import assemble

    importlib.metadata.version("vllm")

    def padded(rows, width, value):
        return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])

    class vLLMRollout:
        def __init__(self, model_path, config, tokenizer, model_hf_config, **kwargs):
            self.config, self.pad = config, tokenizer.pad_token_id
            self.inference_engine = LLM(model=model_path, seed=config.get("seed", 0))
            known = vars(SamplingParams())
            options = {name: value for name, value in config.items() if name in known and name != "IGNORED"}
            self.sampling_params = SamplingParams(**options, logprobs=0, max_tokens=config.response_length)
            self.sampling_params.n = TIMES

        def generate_sequences(self, prompts):
            own = self.sampling_params
            if prompts.meta_info["validate"]:
                own = SamplingParams(**{**vars(own), **self.config.val_kwargs})
            if not prompts.meta_info["do_sample"]:
                own = SamplingParams(**{**vars(own), "temperature": 0.0, **LIMIT})
            requests = [{"prompt_token_ids": list(row)} for row in prompts.non_tensor_batch["raw_prompt_ids"]]
            answers = self.inference_engine.generate(prompts=requests, sampling_params=own)
            found = [one for answer in answers for one in answer.outputs]
            width = self.config.response_length
            tokens = padded([one.token_ids for one in found], width, self.pad)
            chosen = [[x[t].logprob for x, t in zip(one.logprobs, one.token_ids)] for one in found]
            logprobs = padded(chosen, width, -1.0)
            ends = prompts.meta_info["eos_token_id"]
            return DataProto({**assemble(prompts, tokens, ends, own.n), "rollout_log_probs": logprobs}, {}, {})
"""

LENGTH, GREEDY = "options, length", "options, length of a greedy baseline"

HF = """
    import torch
    from abc import ABC
    from transformers import GenerationConfig
    from verl import DataProto
    from verl.rows import assemble

    class HFRollout(ABC):
        def __init__(self, module, config):
            self.module, self.config = module, config

        def generate_sequences(self, prompts):
            rows, about = prompts.batch, prompts.meta_info
            chosen = self.config.val_kwargs if about["validate"] else self.config
            options = GenerationConfig(**{name: chosen[name] for name in ("temperature", "top_p", "top_k")})
            width, prompt = self.config.response_length, rows["input_ids"].shape[1]
            ids = self.module.generate(
                input_ids=rows["input_ids"], attention_mask=rows["attention_mask"], generation_config=options
            ).sequences
            missing = prompt + width - ids.shape[1]
            ids = torch.cat([ids, ids.new_full((ids.shape[0], missing), about["pad_token_id"])], 1)
            return DataProto(assemble(prompts, ids[:, prompt:], about["eos_token_id"], 1), {}, {})
"""

SHARED = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "response_length": 4, "n": 1}
ROLLOUT = {**SHARED, "val_kwargs": {"temperature": 0.0, "top_p": 1.0, "top_k": -1}}
CONFIG = {"actor_rollout_ref": {"rollout": ROLLOUT}}

#: An option that the configuration does not offer for Hugging Face's engine, whose worker here does not read it.
OF_VLLM = "\n# for vllm rollout\nignore_eos: False\n"

TRAINERS = {
    "worker repeats": "        batch = batch.repeat(self.n)",
    "trainer repeats": "        gen_batch = gen_batch.repeat(self.n)",
}

_VLLM = "verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py"
_HF = "verl/workers/rollout/hf_rollout.py"


def _target(loads: Loads, trainer: str = "worker repeats", **broken: str) -> Target:
    times = "config.n" if trainer == "worker repeats" else "1"
    sound = {"IGNORED": "seed", "TIMES": times, "LAST": "1", "LIMIT": "{}"}
    tree = {_VLLM: VLLM, _HF: HF, "verl/rows.py": ROWS}
    tree = {file: rewritten(text, sound | broken) for file, text in tree.items()}
    fit = f"class RayPPOTrainer:\n    def fit(self, batch, gen_batch):\n{TRAINERS[trainer]}\n"
    return loads(
        FRAMEWORK,
        {
            **tree,
            "verl/__init__.py": "from verl.protocol import DataProto",
            "verl/protocol.py": PROTOCOL,
            "verl/trainer/ppo/ray_trainer.py": fit,
            "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG, indent=2).replace('"', "") + OF_VLLM,
            "verl/trainer/config/_generated_ppo_trainer.yaml": json.dumps(CONFIG),
        },
        {"omegaconf/__init__.py": OMEGACONF},
    )


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    found = list(worker_rollouts.boundaries(target))
    assert not [one for one in found if isinstance(one, Unbound)], found
    return {
        ("hf" if "HFRollout" in one.path else "vllm", next(iter(one.settings))): one
        for one in found
        if isinstance(one, Boundary)
    }


def _found(law: Law, target: Target, engine: str, setting: str) -> bool:
    judgement = judged_at(law, _bound(target)[engine, setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is not None


def test_reads_back(loads: Loads) -> None:
    target = _target(loads)
    check_round_trips(target, list(_bound(target).values()))


@pytest.mark.parametrize("trainer", list(TRAINERS))
def test_sound_rows(loads: Loads, trainer: str) -> None:
    target = _target(loads, trainer)
    rows = "rows, two of a prompt"
    for law in (PLC004, TOK001):
        assert not _found(law, target, "vllm", rows)
        assert not _found(law, target, "hf", rows if trainer == "trainer repeats" else "rows")


@pytest.mark.parametrize(
    ("law", "broken"),
    [
        (PLC004, {"LAST": "0"}),  # the end token is not covered
        (PLC004, {"(responses == ends).cumsum(1)": "(responses != ends).long() * 0"}),  # padding is covered
        (PLC004, {"padded(chosen, width, -1.0)": "padded(chosen, width, -1.0).flip(1)"}),
        (PLC004, {"COLUMNS]": "COLUMNS]; responses = responses.roll(1, 0)"}),
        (TOK001, {"torch.arange(1, responses.shape[1] + 1)": "torch.arange(responses.shape[1])"}),
        (
            TOK001,
            {"positions[:, -1:]": "positions[:, -1:] * 0 + positions.shape[1] - 1"},
        ),  # counts the padding of the prompt
    ],
)
def test_wrong_rows(loads: Loads, law: Law, broken: dict[str, str]) -> None:
    assert _found(law, _target(loads, **broken), "vllm", "rows, two of a prompt")


def test_a_worker_that_repeats_what_the_trainer_has_repeated(loads: Loads) -> None:
    target = _target(loads, "trainer repeats", TIMES="config.n")
    assert _found(PLC004, target, "vllm", "rows, two of a prompt")


@pytest.mark.parametrize("ignored", ["seed", ""], ids=["seed of the engine", "seed of each request"])
def test_samples_of_a_prompt(loads: Loads, ignored: str) -> None:
    target = _target(loads, "trainer repeats", IGNORED=ignored)
    assert _found(DAT002, target, "vllm", "samples of a prompt, seed of the engine") is (ignored != "seed")


@pytest.mark.parametrize(
    ("greedy", "sampled", "where"),
    [
        ("{}", "config.response_length", set()),
        ("{'max_tokens': 4096}", "config.response_length", {GREEDY}),
        ("{}", "16", {LENGTH, GREEDY}),
    ],
)
def test_length_of_a_response(loads: Loads, greedy: str, sampled: str, where: set[str]) -> None:
    """A number of tokens in the place of the configuration's, for a greedy baseline or for all responses."""
    target = _target(loads, LIMIT=greedy, **{"max_tokens=config.response_length": f"max_tokens={sampled}"})
    assert {setting for setting in (LENGTH, GREEDY) if _found(CFG004, target, "vllm", setting)} == where


@pytest.mark.parametrize("engine", ["vllm", "hf"])
@pytest.mark.parametrize("setting", ["options, training", "options, validation"])
def test_sound_options(loads: Loads, engine: str, setting: str) -> None:
    assert not _found(CFG004, _target(loads), engine, setting)


@pytest.mark.parametrize(
    ("engine", "setting", "broken"),
    [
        ("vllm", "options, training", {"IGNORED": "top_k"}),
        ("vllm", "options, validation", {", **self.config.val_kwargs": ""}),
        ("hf", "options, training", {"chosen[name]": "chosen.top_p"}),
        ("hf", "options, validation", {'about["validate"]': "False"}),
    ],
)
def test_lost_options(loads: Loads, engine: str, setting: str, broken: dict[str, str]) -> None:
    assert _found(CFG004, _target(loads, **broken), engine, setting)


def test_a_class_that_cannot_be_made_is_left_out(loads: Loads) -> None:
    method = "class HFRollout(ABC):\n        @abstractmethod\n        def release(self):\n            pass\n"
    broken = {"class HFRollout(ABC):\n": method, "from abc import ABC": "from abc import ABC, abstractmethod"}
    target = _target(loads, **broken)
    assert {engine for engine, _ in _bound(target)} == {"vllm"}
