"""SkyRL's Tinker server as a sampler, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.skyrl_worker_specimen import FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK, tinker_sampling
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.law import Law
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

API = """
    from pydantic import BaseModel
    from skyrl.tinker import types

    class EncodedTextChunk(BaseModel):
        tokens: list[int]

    class ModelInput(BaseModel):
        chunks: list[EncodedTextChunk]

        def to_types(self):
            return types.ModelInput(chunks=[{"tokens": chunk.tokens} for chunk in self.chunks])

    class SamplingParams(BaseModel):
        max_tokens: int
        seed: int
        temperature: float = 1.0
        top_p: float = 1.0
        top_k: int = -1
        stop: list = None

        def to_types(self):
            return types.SamplingParams(**vars(self))
"""

TYPES = """
    from pydantic import BaseModel

    class ModelInput(BaseModel):
        chunks: list

    class SamplingParams(BaseModel):
        seed: int

    class SampleInput(BaseModel):
        prompt: ModelInput

    class Sequence(BaseModel):
        tokens: list
        logprobs: list
        stop_reason: str

    class Answer(BaseModel):
        sequences: list
"""

ENGINE = """
    def prepare_sample_batch(requests):
        samples = []
        for name, (_, request) in requests.items():
            for number in range(request.num_samples):
                seed = SEED
                samples.append((name, request.prompt, request.sampling_params.model_copy(update={"seed": seed})))
        return samples
"""

BACKEND = """
    import asyncio
    from skyrl.tinker import types

    class SkyRLTrainBackend:
        def __init__(self):
            raise RuntimeError("a cluster was started")

        def sample(self, samples):
            async def ask():
                asked = [
                    self._inference_engine_client.sample({"json": {
                        "prompt": prompt.model_dump(), "sampling_params": params.model_dump()
                    }})
                    for _, prompt, params in samples
                ]
                return await asyncio.gather(*asked)

            answers, results = asyncio.run(ask()), {}
            for (name, _, _), answer in zip(samples, ORDER):
                reason = REASON
                sequence = types.Sequence(tokens=answer["tokens"], logprobs=answer["logprobs"], stop_reason=reason)
                results.setdefault(name, types.Answer(sequences=[])).sequences.append(sequence)
            return results
"""

CLIENT = """
    class RemoteInferenceClient:
        def __init__(self, proxy_url, server_urls, data_parallel_size, tokenizer):
            self.proxy_url = proxy_url

        async def _get_session(self):
            raise RuntimeError("there is no server")

        async def sample(self, payload):
            body = payload["json"]
            asked = {key: value for key, value in body["sampling_params"].items() if key not in LOST}
            request = {"token_ids": TOKENS, "sampling_params": {**asked, "logprobs": 0}}
            session = await self._get_session()
            async with session.post(self.proxy_url, json=request) as answer:
                choice = (await answer.json())["choices"][0]
            logprobs = [one["logprob"] for one in choice["logprobs"]["content"]]
            return {"tokens": choice["token_ids"], "logprobs": logprobs, "reason": choice["finish_reason"]}
"""

SOUND = {
    "SEED": "request.sampling_params.seed + number",
    "ORDER": "answers",
    "REASON": "answer['reason']",
    "LOST": "()",
    "TOKENS": "[token for chunk in body['prompt']['chunks'] for token in chunk['tokens']]",
}


def _files(**broken: str) -> dict[str, str]:
    files = {
        "skyrl/tinker/api.py": API,
        "skyrl/tinker/types.py": TYPES,
        "skyrl/tinker/engine.py": ENGINE,
        "skyrl/backends/skyrl_train_backend.py": BACKEND,
        "skyrl/backends/skyrl_train/inference_servers/remote_inference_client.py": CLIENT,
    }
    for place, code in {**SOUND, **broken}.items():
        files = {path: source.replace(place, code) for path, source in files.items()}
    return {**FILES, **files}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    target = loads(FRAMEWORK, _files(**broken))
    return target, by_setting(tinker_sampling.boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"distribution", "stop words", "stop tokens"}
    check_calls(target, boundaries.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (PLC004, "distribution", {"SEED": "request.sampling_params.seed"}),
    (PLC004, "distribution", {"ORDER": "answers[::-1]"}),
    (PLC004, "distribution", {"REASON": "'stop'"}),
    (PLC004, "distribution", {"TOKENS": "body['prompt']['chunks'][0]['tokens']"}),
    (CFG001, "distribution", {"LOST": "('top_k',)"}),
    (CFG001, "stop tokens", {"LOST": "('stop',)"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """One seed for all samples, answers swapped, a response cut off that seems whole, a chunk or an option lost."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[setting], setting, target, found=found)


def test_a_release_with_engines_of_its_own(loads: Loads) -> None:
    """Without a client of servers nothing is bound; without the endpoint's classes the reason is given."""
    files = _files()
    files["skyrl/backends/skyrl_train_backend.py"] = "class SkyRLTrainBackend:\n    def sample(self, samples): ...\n"
    assert list(tinker_sampling.boundaries(loads(FRAMEWORK, files))) == []
    (one,) = tinker_sampling.boundaries(loads(FRAMEWORK, {**_files(), "skyrl/tinker/api.py": "x = 1"}))
    assert isinstance(one, Unbound)
    assert "skyrl.tinker.api" in one.reason
