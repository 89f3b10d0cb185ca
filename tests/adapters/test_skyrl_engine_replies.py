"""Replies of SkyRL's inference engines, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK, engine_replies
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

REMOTE = """
    from types import SimpleNamespace

    aiohttp = SimpleNamespace()

    class RemoteInferenceEngine:
        def __init__(self, url, model_name, engine_backend, tokenizer):
            self.url, self.tokenizer = url, tokenizer

        async def generate(self, batch):
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
                payload = {"input_ids": PROMPTS, "sampling_params": batch["sampling_params"]}
                async with session.post(self.url, json=payload) as answer:
                    replies = await answer.json()
            ids = [reply["output_ids"] for reply in replies]
            return {
                "response_ids": ids,
                "responses": [self.tokenizer.decode(row, OPTIONS) for row in ids],
                "stop_reasons": [reply["meta_info"]["finish_reason"]["type"] for reply in replies],
            }
"""

SGLANG = """
    class SGLangInferenceEngine:
        def __init__(self):
            raise RuntimeError("engines are not started here")

        async def generate(self, batch):
            replies = await self.engine.async_generate(input_ids=batch["prompt_token_ids"], sampling_params={})
            ids = [reply["output_ids"] for reply in replies]
            return {
                "response_ids": ids,
                "responses": self.tokenizer.batch_decode(ids, OPTIONS),
                "stop_reasons": [reply["meta_info"]["finish_reason"]["type"] for reply in replies],
                "response_logprobs": None,
            }
"""

VLLM = """
    from abc import ABC, abstractmethod

    class BaseVLLMInferenceEngine(ABC):
        @abstractmethod
        def wake_up(self):
            pass

        def _postprocess_outputs(self, outputs):
            replies = [output.outputs[0] for output in outputs]
            return {
                "response_ids": [reply.token_ids for reply in replies],
                "responses": [reply.text for reply in replies],
                "stop_reasons": [reply.finish_reason for reply in replies],
                "response_logprobs": [
                    [LOGPROB for token, every in zip(reply.token_ids, reply.logprobs)] for reply in replies
                ],
            }
"""

SOUND = {
    "OPTIONS": "skip_special_tokens=True",
    "PROMPTS": 'batch["prompt_token_ids"]',
    "LOGPROB": "every[token].logprob",
}
ENGINES = ("RemoteInferenceEngine", "SGLangInferenceEngine", "BaseVLLMInferenceEngine")


def _bound(loads: Loads, **words: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    folder = "skyrl/backends/skyrl_train/inference_engines"
    files = {
        "skyrl/__init__.py": "",
        f"{folder}/remote_inference_engine.py": REMOTE,
        f"{folder}/sglang/sglang_engine.py": SGLANG,
        f"{folder}/vllm/vllm_engine.py": VLLM,
    }
    for name, word in {**SOUND, **words}.items():
        files = {path: source.replace(name, word) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    every = [b for b in engine_replies.boundaries(target) if isinstance(b, Boundary)]
    return target, {(b.path.split(".")[-2], next(iter(b.settings))): b for b in every}


def test_answers(loads: Loads) -> None:
    target, every = _bound(loads)
    assert tuple(name for name, _ in every) == ENGINES
    check_calls(target, every.values())


@pytest.mark.parametrize(
    ("broken", "engines"),
    [
        ({}, ()),
        ({"OPTIONS": "skip_special_tokens=False"}, ENGINES[:2]),  # the text has the end token
        ({"PROMPTS": "[ids[::-1] for ids in batch['prompt_token_ids']]"}, ENGINES[:1]),
        ({"LOGPROB": "every[token].logprob / 2"}, ENGINES[2:]),
    ],
)
def test_replies(loads: Loads, broken: dict[str, str], engines: tuple[str, ...]) -> None:
    target, every = _bound(loads, **broken)
    for (name, setting), boundary in every.items():
        check_verdict(PLC004, boundary, setting, target, found=name in engines)


def test_engines_that_return_texts_only(loads: Loads) -> None:
    """Engines in the process whose replies have a field for token ids, but no ids in it."""
    fields = {'"response_ids": ids': '"response_ids": None', '"response_ids": [reply': '"other_ids": [reply'}
    _, every = _bound(loads, **fields)
    assert {name for name, _ in every} == {"RemoteInferenceEngine"}


def test_engine_of_a_server_that_returns_texts_only(loads: Loads) -> None:
    """A server of vLLM returns no token ids."""
    _, every = _bound(loads, output_ids="text")
    assert "RemoteInferenceEngine" not in {name for name, _ in every}
