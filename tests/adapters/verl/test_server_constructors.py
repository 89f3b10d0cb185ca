"""The options that verl's inference servers keep, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, server_constructors
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

SERVER = """
    import os

    import ray

    omega_conf_to_dataclass = None

    class NAMEHttpServer:
        def __init__(self, config, model_config, rollout_mode, workers, replica_rank, cuda_visible_devices):
            os.environ["VISIBLE"] = cuda_visible_devices
            self.job = ray.get_runtime_context().get_job_id()
            self.config = omega_conf_to_dataclass(config)
            self.model_config = omega_conf_to_dataclass(model_config)
            longest = self.model_config.hf_config.max_position_embeddings
            KEEP
            self.workers = workers
            raise RuntimeError("no engine is started")
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class RolloutConfig:
        name: str
        temperature: float = 1.0
        max_model_len: int | None = None
        dtype: str = "bfloat16"
"""

PLACES = {
    "vLLM": "verl/workers/rollout/vllm_rollout/vllm_async_server.py",
    "SGLang": "verl/workers/rollout/sglang_rollout/async_sglang_server.py",
}
SOUND = "self.config.max_model_len = min(self.config.max_model_len or longest, longest)"
NAME = "options of the rollout"


def _bound(loads: Loads, keep: str = SOUND) -> tuple[Target, list[Boundary]]:
    tree = {place: rewritten(SERVER, {"KEEP": keep, "NAME": name}) for name, place in PLACES.items()}
    tree |= {"verl/workers/config/__init__.py": CONFIG, "verl/workers/__init__.py": "", "verl/__init__.py": ""}
    target = loads(FRAMEWORK, tree, {"ray/__init__.py": ""})
    return target, [one for one in server_constructors.boundaries(target) if isinstance(one, Boundary)]


def test_answers_and_reads_back(loads: Loads) -> None:
    """A server of each engine."""
    target, bound = _bound(loads)
    assert [one.path.rpartition(".rollout.")[2].partition(".")[0] for one in bound] == [
        "vllm_rollout",
        "sglang_rollout",
    ]
    check_calls(target, bound)


@pytest.mark.parametrize("engine", [0, 1])
@pytest.mark.parametrize(
    ("keep", "found"),
    [
        (SOUND, False),
        ("self.config.max_model_len = longest", True),
        ("self.config.max_model_len = None", True),
        ('self.config.dtype = "auto"', True),
    ],
)
def test_options_of_the_rollout(loads: Loads, keep: str, found: bool, engine: int) -> None:
    """The model's own maximum length, none, and another data type."""
    target, bound = _bound(loads, keep)
    check_verdict(CFG004, bound[engine], NAME, target, found=found)


def test_releases_without_these_servers(loads: Loads) -> None:
    """A release without these servers, or without the configuration, has no boundary here."""
    assert list(server_constructors.boundaries(loads(FRAMEWORK, {"verl/workers/config/__init__.py": CONFIG}, {}))) == []
    assert list(server_constructors.boundaries(loads(FRAMEWORK, {"verl/workers/__init__.py": ""}, {}))) == []
