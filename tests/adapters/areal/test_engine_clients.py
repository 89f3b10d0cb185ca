"""AReaL's client of the inference service, on a specimen of its call shape in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK, requests, versions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIGS = """
    from dataclasses import dataclass

    @dataclass
    class GenerationHyperparameters:
        n_samples: int = 1
        max_new_tokens: int = 8
        temperature: float = 1.0
"""

TYPES = """
    from dataclasses import dataclass, field
    from areal.api.cli_args import GenerationHyperparameters

    @dataclass
    class ModelRequest:
        input_ids: list
        gconfig: object = field(default_factory=GenerationHyperparameters)
"""

BRIDGE = """
    from types import SimpleNamespace

    class InfBridge:
        def __init__(self, backend, backend_addr, pause_state, max_resubmit_retries=20, version=0):
            raise RuntimeError("there is no server")

        def set_version(self, version):
            self._version = version

        async def _send_request(self, http_request):
            raise RuntimeError("there is no server")

        async def agenerate(self, request):
            http = self.backend.build_generation_request(request, with_lora=False)
            most = self.backend.get_generation_max_new_tokens(http)
            tokens, logprobs, versions = [], [], []
            for _ in range(self.max_resubmit_retries):
                while await self.pause_state.is_paused():
                    pass
                self.backend.patch_generation_request(http, request, tokens, most - SPENT)
                before = self._version
                result = self.backend.parse_generation_response(await self._send_request(http))
                tokens = tokens + result.output_tokens
                logprobs += result.output_logprobs
                versions += [VERSION] * len(result.output_tokens)
                if result.stop_reason != "abort":
                    break
            return SimpleNamespace(output_tokens=tokens, output_logprobs=logprobs, output_versions=versions)
"""

BACKEND = """
    from types import SimpleNamespace

    class SGLangBridgeBackend:
        def build_generation_request(self, request, with_lora, version=-1):
            params = {"max_new_tokens": request.gconfig.max_new_tokens, "temperature": HEAT}
            return SimpleNamespace(payload={"input_ids": request.input_ids, "sampling_params": params})

        def get_generation_max_new_tokens(self, http):
            return http.payload["sampling_params"]["max_new_tokens"]

        def patch_generation_request(self, http, request, tokens, left):
            http.payload["input_ids"] = request.input_ids + PATCHED
            http.payload["sampling_params"]["max_new_tokens"] = left

        def parse_generation_response(self, answer):
            about = answer["meta_info"]
            pairs = about["output_token_logprobs"]
            return SimpleNamespace(
                output_tokens=[pair[1] for pair in pairs],
                output_logprobs=[pair[0] for pair in pairs],
                stop_reason=about["finish_reason"]["type"],
            )
"""

SOUND = {"SPENT": "len(tokens)", "VERSION": "before", "HEAT": "request.gconfig.temperature", "PATCHED": "tokens"}


def _loaded(loads: Loads, **words: str) -> Target:
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIGS,
        "areal/api/io_struct.py": TYPES,
        "areal/experimental/inference_service/inf_bridge.py": BRIDGE,
        "areal/experimental/inference_service/sglang/bridge.py": BACKEND,
    }
    for name, word in {**SOUND, **words}.items():
        files = {path: source.replace(name, word) for path, source in files.items()}
    return loads(FRAMEWORK, files)


def _bound(target: Target) -> dict[str, Boundary]:
    every = [b for b in (*requests.boundaries(target), *versions.boundaries(target)) if isinstance(b, Boundary)]
    assert all("InfBridge" in b.path for b in every)
    return {setting: b for b in every for setting in b.settings}


def test_answers(loads: Loads) -> None:
    target = _loaded(loads)
    every = _bound(target)
    assert "SGLang, experts" not in every
    assert answering({("specimen", setting): boundary for setting, boundary in every.items()}, target) == []


def test_segments_of_several_versions(loads: Loads) -> None:
    target = _loaded(loads)
    columns = {"version": torch.tensor([[3, 3, 5], [7, 8, 0]]), "token": torch.tensor([[1, 2, 3], [4, 5, 0]])}
    mask = torch.tensor([[True, True, True], [True, True, False]])
    batch = batch_of(mask, length=torch.tensor([3, 2]), **columns)
    boundary = _bound(target)["default"]
    outputs = outputs_of(target, boundary, "default", batch)
    assert torch.equal(outputs["version"], batch.version)
    assert torch.equal(outputs["token"], batch.token)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ({"VERSION": "self._version"}, "default"),
        ({"SPENT": "0"}, "SGLang, distribution"),
        ({"PATCHED": "[]"}, "SGLang, distribution"),
    ],
    ids=["version after the reply", "budget of each reply", "continues from the prompt"],
)
def test_replies_that_are_put_together_wrongly(loads: Loads, words: dict[str, str], setting: str) -> None:
    target = _loaded(loads, **words)
    check_verdict(PLC004, _bound(target)[setting], setting, target, found=True)


@pytest.mark.parametrize("setting", ["default", "SGLang, distribution"])
def test_replies_that_are_put_together_right(loads: Loads, setting: str) -> None:
    target = _loaded(loads)
    check_verdict(PLC004, _bound(target)[setting], setting, target, found=False)


@pytest.mark.parametrize(("heat", "found"), [("request.gconfig.temperature", False), ("1.0", True)])
def test_option_that_is_not_sent(loads: Loads, heat: str, found: bool) -> None:
    target = _loaded(loads, HEAT=heat)
    check_verdict(CFG001, _bound(target)["SGLang, distribution"], "SGLang, distribution", target, found=found)
