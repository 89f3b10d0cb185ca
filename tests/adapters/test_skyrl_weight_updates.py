"""SkyRL's weight update while the engines have a request, on a specimen of its dispatcher in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, weight_updates
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class Placement:
        colocate_all: bool = True

    @dataclass
    class FullyAsync:
        enabled: bool = False

    @dataclass
    class Trainer:
        placement: Placement = field(default_factory=Placement)
        fully_async: FullyAsync = field(default_factory=FullyAsync)

    @dataclass
    class Engine:
        OFFLOAD: bool = False

    @dataclass
    class Generator:
        inference_engine: Engine = field(default_factory=Engine)

    @dataclass
    class SkyRLTrainConfig:
        trainer: Trainer = field(default_factory=Trainer)
        generator: Generator = field(default_factory=Generator)
"""

DISPATCH = """
    import ray

    class WorkerDispatch:
        def __init__(self, cfg, policy_actor_group, inference_engine_client=None):
            self.shared = cfg.trainer.placement.colocate_all
            self.offloads = getattr(cfg.generator.inference_engine, "offload_kv_for_weight_sync", False)
            self.policy, self.engines = policy_actor_group, inference_engine_client

        def _send(self):
            ray.get(self.policy.async_run_ray_method("pass_through", "broadcast_to_inference_engines", self.engines))

        async def save_weights_for_sampler(self):
            if self.shared:
                self.policy.backload_to_gpu(backload_optimizer=False)
                await self.engines.wake_up(tags=EARLY)
                self._send()
                self.policy.offload_to_cpu()
                await self.engines.wake_up(tags=["kv_cache"])
            elif self.offloads:
                await self.engines.sleep_for_weight_sync(offload_kv=True)
                await self.engines.wake_for_weight_sync(tags=["weights"])
                self._send()
                await self.engines.wake_for_weight_sync(tags=["kv_cache"])
            else:
                BEFORE
                self._send()
                AFTER
            self.engines.increment_weight_version()
"""

SOUND = {
    "EARLY": '["weights"]',
    "BEFORE": "await self.engines.pause_generation()",
    "AFTER": "await self.engines.resume_generation()",
    "OFFLOAD": "offload_kv_for_weight_sync",
}
SETTINGS = {"own devices", "shared devices", "own devices, cache is offloaded"}


def _bound(loads: Loads, **words: str) -> tuple[Target, dict[str, Boundary]]:
    files = {
        "skyrl/__init__.py": "",
        "skyrl/train/config.py": CONFIG,
        "skyrl/backends/skyrl_train/workers/worker_dispatch.py": DISPATCH,
    }
    for name, word in {**SOUND, **words}.items():
        files = {path: source.replace(name, word) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    return target, by_setting(weight_updates.boundaries(target))


def test_engines_that_sample_from_whole_weights(loads: Loads) -> None:
    target, bound = _bound(loads)
    assert set(bound) == SETTINGS
    for setting, one in bound.items():
        check_round_trip(target, one)
        check_verdict(PLC004, one, setting, target, found=False)


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ({"BEFORE": "pass"}, "own devices"),
        ({"AFTER": "pass"}, "own devices"),
        ({"EARLY": "None"}, "shared devices"),
    ],
    ids=["never paused", "never resumed", "woken before the weights come"],
)
def test_engines_that_do_not(loads: Loads, words: dict[str, str], setting: str) -> None:
    target, bound = _bound(loads, **words)
    check_verdict(PLC004, bound[setting], setting, target, found=True)


def test_a_release_that_cannot_offload_the_cache(loads: Loads) -> None:
    _, bound = _bound(loads, OFFLOAD="other")
    assert set(bound) == {"own devices", "shared devices"}


def test_a_release_without_the_dispatcher(loads: Loads) -> None:
    assert list(weight_updates.boundaries(loads(FRAMEWORK, {"skyrl/__init__.py": ""}))) == []
