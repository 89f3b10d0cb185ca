"""The caches of verl's vLLM server after new weights, on a specimen of the server in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, engine_caches
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SERVER = """
    from importlib.metadata import version

    version("vllm")
    _VLLM_VERSION = "0"

    class vLLMHttpServer:
        async def clear_kv_cache(self):
            for cache in {caches}:
                await getattr(self.engine, f"reset_{{cache}}_cache")()
            if _VLLM_VERSION >= {since}:
                await self.engine.reset_encoder_cache(all=True)
"""

TEXT, IMAGES = "text", "text and images"


def _bound(loads: Loads, caches: str, since: str) -> tuple[Target, dict[str, Boundary]]:
    path = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
    target = loads(FRAMEWORK, {**files(), path: SERVER.format(caches=caches, since=since)})
    return target, by_setting(engine_caches.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, named = _bound(loads, '("prefix", "mm")', '"1"')
    assert set(named) == {TEXT, IMAGES}
    check_calls(target, named.values())


@pytest.mark.parametrize(
    ("caches", "since", "broken"),
    [
        ('("prefix", "mm")', '"1"', set()),
        ('("prefix",)', '"1"', {IMAGES}),
        ('("prefix", "mm")', '"1" and False', {IMAGES}),
        ('("mm",)', '"1"', {TEXT, IMAGES}),
    ],
)
def test_caches_of_old_weights(loads: Loads, caches: str, since: str, broken: set[str]) -> None:
    """A request with an image reads more caches than a request of text; what it reads has to be computed anew."""
    target, named = _bound(loads, caches, since)
    for name, boundary in named.items():
        check_verdict(PLC004, boundary, name, target, found=name in broken)


def test_releases_without_the_method(loads: Loads) -> None:
    """Have no such boundary."""
    assert not list(engine_caches.boundaries(loads(FRAMEWORK, files())))
