"""The launch of verl's vLLM server, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, launched_servers
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

SERVER = """
    import dataclasses
    import json
    from pprint import pprint

    vllm = FlexibleArgumentParser = None

    def flags():
        from vllm.engine.arg_utils import AsyncEngineArgs
        return [field.name for field in dataclasses.fields(AsyncEngineArgs) if field.default is True]

    class vLLMHttpServer:
        async def launch_server(self, **_address):
            defaults = {"temperature": self.config.temperature, "top_p": NUCLEUS, "top_k": self.config.top_k}
            options = {
                "dtype": self.config.dtype,
                "max_model_len": self.config.max_model_len,
                "max_num_seqs": self.config.max_num_seqs,
                "logprobs_mode": self.config.logprobs_mode,
                "seed": SEED,
                "override_generation_config": json.dumps(defaults),
            }
            words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
            for name in ("enforce_eager", "enable_chunked_prefill", "enable_prefix_caching"):
                words += [f"--{name}"] if getattr(self.config, name) else OFF
            pprint(words)
            for port in (self._master_sock, self._dp_rpc_sock, self._dp_master_sock):
                port.close()
            assert vllm.entrypoints.cli.serve.cmd_init() == []
            parser = FlexibleArgumentParser(description="")
            await self.run_server(parser.parse_args(args=["serve", self.model_config.local_path, *words]))
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class RolloutConfig:
        name: str = ""
        temperature: float = 1.0
        top_p: float = 1.0
        top_k: int = -1
        max_model_len: int | None = None
        max_num_seqs: int = 1024
        dtype: str = "bfloat16"
        logprobs_mode: str = "processed_logprobs"
        enforce_eager: bool = False
        enable_chunked_prefill: bool = True
        enable_prefix_caching: bool = True
        seed: int = 0
"""

SOUND = {
    "NUCLEUS": "self.config.top_p",
    "SEED": "self.replica_rank + self.config.seed",
    "OFF": '[f"--no-{name}"]',
}


def _bound(loads: Loads, **words: str) -> tuple[Target, list[Boundary]]:
    server = SERVER
    for name, word in {**SOUND, **words}.items():
        server = server.replace(name, word)
    files = {
        "verl/__init__.py": "",
        "verl/workers/config/__init__.py": CONFIG,
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py": server,
    }
    target = loads(FRAMEWORK, files)
    return target, [b for b in launched_servers.boundaries(target) if isinstance(b, Boundary)]


def test_answers(loads: Loads) -> None:
    target, found = _bound(loads)
    assert [boundary.stage for boundary in found] == ["config", "config", "config", "batch"]
    assert answering({(b.stage, setting): b for b in found for setting in b.settings}, target) == []


@pytest.mark.parametrize(("place", "law"), [(0, CFG004), (1, CFG004), (2, CFG004), (3, DAT002)])
def test_sound_launch(loads: Loads, place: int, law: Law) -> None:
    target, found = _bound(loads)
    (setting,) = found[place].settings
    check_verdict(law, found[place], setting, target, found=False)


@pytest.mark.parametrize(
    ("words", "place", "law"),
    [
        ({"NUCLEUS": "1.0"}, 0, CFG004),
        ({"OFF": "[]"}, 2, CFG004),
        ({"OFF": '[f"--no-{name}"] if name in flags() else []'}, 2, CFG004),
        ({"SEED": "self.config.seed"}, 3, DAT002),
    ],
    ids=["a default instead of the setting", "flags are left out", "a default of True alone", "replicas have one seed"],
)
def test_broken_launch(loads: Loads, words: dict[str, str], place: int, law: Law) -> None:
    target, found = _bound(loads, **words)
    (setting,) = found[place].settings
    check_verdict(law, found[place], setting, target, found=True)


def test_seeds_may_be_far_apart(loads: Loads) -> None:
    """Only equal seeds draw equal samples."""
    target, found = _bound(loads, SEED="1000 * self.replica_rank + self.config.seed")
    (setting,) = found[3].settings
    check_verdict(DAT002, found[3], setting, target, found=False)


def test_round_trip(loads: Loads) -> None:
    target, found = _bound(loads)
    check_round_trips(target, found)
