"""SkyRL's client of servers with a LoRA adapter, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at, rewritten, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.lora_servers import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.resume_differs import LAW as RES001

CLIENT = """
    from dataclasses import dataclass

    @dataclass
    class RemoteInferenceClient:
        proxy_url: str
        server_urls: list
        uses_lora_weight_sync: bool = False

        async def _call(self, url, json=None, params=None):
            session = await self._get_session()
            async with session.request("POST", url, json=json, params=params) as reply:
                if reply.status >= 400 and reply.status != 404:
                    raise ValueError(f"{url}: status {reply.status}")

        async def sleep(self, level=2):
            level = LEVEL
            for server in self.server_urls:
                await self._call(f"{server}/sleep", params={"level": level})

        async def wake_up(self):
            for server in self.server_urls:
                await self._call(f"{server}/wake_up")

        async def load_lora_adapter(self, lora_name, lora_path):
            for server in SERVERS:
                if UNLOADS:
                    await self._call(f"{server}/v1/unload_lora_adapter", json={"lora_name": lora_name})
                adapter = {"lora_name": lora_name, "lora_path": lora_path}
                await self._call(f"{server}/v1/load_lora_adapter", json=adapter)
"""

SOUND = {
    "LEVEL": "1 if self.uses_lora_weight_sync else level",
    "SERVERS": "self.server_urls",
    "UNLOADS": "True",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(CLIENT, SOUND | broken)
    folder = "skyrl/backends/skyrl_train/inference_servers"
    target = loads(FRAMEWORK, {"skyrl/__init__.py": "", f"{folder}/remote_inference_client.py": source})
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert answering({("servers", "default"): boundary}, target) == []
    check_verdict(RES001, boundary, "default", target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    ("broken", "output"),
    [({"LEVEL": "level"}, "base model"), ({"SERVERS": "self.server_urls[:1]"}, "update of the adapter")],
)
def test_broken(loads: Loads, broken: dict[str, str], output: str) -> None:
    """A base model that is discarded, and a server that keeps an old adapter."""
    target, boundary = _bound(loads, **broken)
    found = judged_at(RES001, boundary, "default", target).found
    assert found is not None
    assert found.expectation.output == f"{output} after sleep and update"


def test_adapter_that_is_loaded_already(loads: Loads) -> None:
    """A server refuses an adapter that is loaded, if it is not unloaded first."""
    target, boundary = _bound(loads, UNLOADS="False")
    assert answering({("servers", "default"): boundary}, target) != []
