"""SkyRL's clients of servers and of engines, on a specimen of their call shapes in words of our own."""

from collections.abc import Mapping

import pytest
import torch

from adapters.checks import Loads, answering, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, inference_clients
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class SamplingParams:
        max_generate_length: int = 8
        temperature: float = 1.0
        repetition_penalty: float = 1.0
        logprobs: int = 1

    @dataclass
    class Generator:
        sampling_params: SamplingParams = field(default_factory=SamplingParams)

    @dataclass
    class SkyRLTrainConfig:
        generator: Generator = field(default_factory=Generator)
"""

_CONFIG_FILE: Mapping[str, str] = {"skyrl/train/config.py": CONFIG}

SAMPLING = """
    def get_sampling_params_for_backend(backend, params):
        asked = {"temperature": params.temperature, "repetition_penalty": PENALTY, "logprobs": params.logprobs}
        return {"max_tokens": params.max_generate_length, **asked}
"""

#: The fields of both clients of servers.
_CLIENT = """
    import asyncio
    from dataclasses import dataclass
    from typing import Any

    @dataclass
    class RemoteInferenceClient:
        proxy_url: str
        server_urls: list
        tokenizer: Any = None

        async def _get_session(self):
            raise RuntimeError("there is no server")
"""

REMOTE = (
    _CLIENT
    + """
        async def _single(self, ids, params):
            session = await self._get_session()
            async with session.post(self.proxy_url, json={"token_ids": ids, "sampling_params": params}) as answer:
                choice = (await answer.json())["choices"][0]
            return choice["token_ids"], [one["logprob"] for one in choice["logprobs"]["content"]]

        async def generate(self, batch):
            prompts, params = batch["prompt_token_ids"], batch["sampling_params"]
            tasks = [asyncio.ensure_future(self._single(ids, params)) for ids in prompts]
            answers = await asyncio.gather(*tasks) if IN_ORDER else [await one for one in asyncio.as_completed(tasks)]
            return {"response_ids": [x[0] for x in answers], "response_logprobs": [x[1] for x in answers]}
"""
)

#: The client of servers that complete a text: it gets the tokens of a response, or tokenizes the text again.
COMPLETIONS = (
    _CLIENT
    + """
        async def _asked(self, path, body):
            session = await self._get_session()
            async with session.post(self.proxy_url + path, json=body) as answer:
                answer.raise_for_status()
                return await answer.json()

        async def _single(self, ids, params):
            body = await self._asked("/v1/completions", {**params, "prompt": ids, "skip_special_tokens": SKIPS})
            return (await self._asked("/tokenize", {"prompt": body["choices"][0]["text"]}))["tokens"]

        async def generate(self, batch):
            tasks = [self._single(ids, batch["sampling_params"]) for ids in batch["prompt_token_ids"]]
            answers = [{"response_ids": ids} for ids in await asyncio.gather(*tasks)]
            return dict(
                response_ids=[one["response_ids"] for one in answers],
                response_logprobs=None,
            )
"""
)

ENGINES = """
    class InferenceEngineClient:
        def __init__(self, engines, tokenizer):
            raise RuntimeError("engines are not started here")

        async def generate(self, batch):
            REFUSES
            prompts = batch["prompt_token_ids"]
            tokens, logprobs = [None] * len(prompts), [None] * len(prompts)
            for number, engine in enumerate(self.engines):
                rows = list(range(number, len(prompts), len(self.engines)))
                ids = [prompts[row] for row in rows]
                for place, answer in zip(rows if PLACED else rows[::-1], await self._all(engine, ids, batch)):
                    tokens[place], logprobs[place] = answer
            return {"response_ids": tokens, "response_logprobs": logprobs}

        async def _all(self, engine, prompts, batch):
            return [await self._continued(engine, ids, batch["sampling_params"]) for ids in prompts]

        async def _continued(self, engine, ids, params):
            tokens, logprobs, stop_reason = [], [], "abort"
            while stop_reason == "abort":
                left = params["max_tokens"] - SPENT
                asked = {"prompt_token_ids": [ids + tokens], "sampling_params": {**params, "max_tokens": left}}
                answer = await engine.generate(asked)
                tokens = tokens + answer["response_ids"][0]
                logprobs = ADDED
                stop_reason = answer["stop_reasons"][0]
            return tokens, logprobs
"""

SOUND = {
    "REFUSES": "pass",
    "PENALTY": "params.repetition_penalty",
    "IN_ORDER": "True",
    "PLACED": "True",
    "SPENT": "len(tokens)",
    "ADDED": 'logprobs + answer["response_logprobs"][0]',
}


def _bound(
    loads: Loads, remote: str = REMOTE, configuration: Mapping[str, str] = _CONFIG_FILE, **words: str
) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    backend = "skyrl/backends/skyrl_train"
    files = {
        "skyrl/__init__.py": "",
        **configuration,
        f"{backend}/inference_servers/engine_utils.py": SAMPLING,
        f"{backend}/inference_servers/remote_inference_client.py": remote,
        f"{backend}/inference_engines/inference_engine_client.py": ENGINES,
    }
    for name, word in {**SOUND, **words}.items():
        files = {path: source.replace(name, word) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    every = [b for b in inference_clients.boundaries(target) if isinstance(b, Boundary)]
    return target, {(b.path.split(".")[-2], setting): b for b in every for setting in b.settings}


_EACH, _ALL = "a request per response", "one request"


def test_answers(loads: Loads) -> None:
    target, every = _bound(loads)
    clients = ("RemoteInferenceClient", "InferenceEngineClient")
    assert set(every) == {(name, s) for name in clients for s in (_EACH, _ALL, "distribution", "penalty")}
    assert answering(every, target) == []


@pytest.mark.parametrize("client", ["RemoteInferenceClient", "InferenceEngineClient"])
@pytest.mark.parametrize("setting", [_EACH, _ALL])
def test_responses(loads: Loads, client: str, setting: str) -> None:
    target, every = _bound(loads)
    boundary = every[client, setting]
    mask = torch.tensor([[True, True, True], [True, True, False]])
    batch = batch_of(mask, length=torch.tensor([3, 2]), token=torch.tensor([[1, 2, 3], [4, 5, 0]]))
    outputs = outputs_of(target, boundary, setting, batch)
    assert torch.equal(outputs["token"], batch.token)
    assert torch.equal(outputs["rollout_logprob"], batch.rollout_logprob)
    check_verdict(PLC004, boundary, setting, target, found=False)


@pytest.mark.parametrize(
    ("words", "client", "setting"),
    [
        ({"IN_ORDER": "False"}, "RemoteInferenceClient", _ALL),
        ({"PLACED": "False"}, "InferenceEngineClient", _ALL),
        ({"SPENT": "0"}, "InferenceEngineClient", _EACH),
        ({"ADDED": 'answer["response_logprobs"][0]'}, "InferenceEngineClient", _EACH),
    ],
    ids=["order of arrival", "engines one after the other", "budget of each reply", "log-probs of the last reply"],
)
def test_responses_that_are_put_together_wrongly(
    loads: Loads, words: dict[str, str], client: str, setting: str
) -> None:
    target, every = _bound(loads, REMOTE, _CONFIG_FILE, **words)
    check_verdict(PLC004, every[client, setting], setting, target, found=True)


@pytest.mark.parametrize(("skips", "found"), [("False", False), ("True", True)])
def test_text_that_is_tokenized_again(loads: Loads, skips: str, found: bool) -> None:
    """The text lacks the token that ends the response; the client returns no log-probs."""
    target, every = _bound(loads, COMPLETIONS, SKIPS=skips)
    boundary = every["RemoteInferenceClient", _EACH]
    assert list(boundary.outputs) == ["token"]
    check_verdict(PLC004, boundary, _EACH, target, found=found)


def test_earlier_name_of_the_configuration(loads: Loads) -> None:
    package = {
        "skyrl/train/config/__init__.py": "from skyrl.train.config.config import SkyRLConfig",
        "skyrl/train/config/config.py": CONFIG.replace("SkyRLTrainConfig", "SkyRLConfig"),
    }
    target, every = _bound(loads, configuration=package)
    check_verdict(PLC004, every["RemoteInferenceClient", _EACH], _EACH, target, found=False)


def test_client_that_refuses_pauses(loads: Loads) -> None:
    """Its requests are not aborted, although another method continues those that are."""
    refuses = "if getattr(self, 'paused', False): raise RuntimeError('a pause is unsupported')"
    target, every = _bound(loads, REFUSES=refuses, SPENT="0", ADDED='answer["response_logprobs"][0]')
    check_verdict(PLC004, every["InferenceEngineClient", _EACH], _EACH, target, found=False)


@pytest.mark.parametrize(("penalty", "found"), [("params.repetition_penalty", False), ("1.0", True)])
def test_parameter_that_is_not_sent(loads: Loads, penalty: str, found: bool) -> None:
    target, every = _bound(loads, PENALTY=penalty)
    check_verdict(CFG001, every["RemoteInferenceClient", "penalty"], "penalty", target, found=found)


def test_round_trip(loads: Loads) -> None:
    target, every = _bound(loads)
    for setting in (_EACH, _ALL):
        check_round_trip(target, every["InferenceEngineClient", setting])
