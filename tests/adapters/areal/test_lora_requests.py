"""Requests to AReaL's servers with a LoRA adapter, on a specimen of its backends in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at, rewritten, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.lora_requests import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.resume_differs import LAW as RES001

API = """
    from dataclasses import dataclass, replace

    @dataclass
    class ModelRequest:
        input_ids: list
        gconfig: object

    @dataclass
    class WeightUpdateMeta:
        type: str
        path: str
        use_lora: bool
        lora_name: str
        lora_keep_versions: int = 0
        version: int = None

        def with_version(self, version):
            return replace(self, path=f"{self.path}_v{version}", version=version)
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class GenerationHyperparameters:
        lora_name: str = ""
"""

BACKEND = """
    from types import SimpleNamespace

    class SGLangBackend:
        def build_disk_weight_update_requests(self, meta):
            def call(what, version, **more):
                payload = {"lora_name": NAMED, **more}
                return SimpleNamespace(endpoint=f"/{what}_lora_adapter", payload=payload)

            calls = [call("load", meta.version, lora_path=meta.path)]
            if meta.version > meta.lora_keep_versions:
                calls.append(call("unload", meta.version - KEPT))
            return SimpleNamespace(requests=calls)

        def build_generation_request(self, req, with_lora, version):
            name = f"{req.gconfig.lora_name}-{SAMPLES}"
            return SimpleNamespace(payload={"lora_path": name} if with_lora else {})
"""

SOUND = {"NAMED": 'f"{meta.lora_name}-{version}"', "KEPT": "meta.lora_keep_versions", "SAMPLES": "version"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(BACKEND, SOUND | broken)
    tree = {
        "areal/__init__.py": "",
        "areal/api/io_struct.py": API,
        "areal/api/cli_args.py": CONFIG,
        "areal/engine/sglang_remote.py": source,
    }
    target = loads(FRAMEWORK, tree)
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert answering({("adapters", "SGLang, adapters"): boundary}, target) == []
    check_verdict(RES001, boundary, "SGLang, adapters", target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    ("broken", "output"),
    [
        ({"NAMED": "meta.lora_name + '-1'", "SAMPLES": "1"}, "adapter of new request"),
        ({"KEPT": "1"}, "adapter of earlier request"),
        ({"SAMPLES": "version - 1"}, "adapter of new request"),
    ],
)
def test_broken(loads: Loads, broken: dict[str, str], output: str) -> None:
    """One name for all versions, a version that is unloaded too early, and the name of an earlier version."""
    target, boundary = _bound(loads, **broken)
    found = judged_at(RES001, boundary, "SGLang, adapters", target).found
    assert found is not None
    assert found.expectation.output == output
