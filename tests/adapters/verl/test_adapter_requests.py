"""The adapter that verl's inference servers ask for, on a specimen of a server in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.test_rollout_servers import CONFIG, OUTPUT, SGLANG, SOUND, VLLM
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, adapter_requests
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

#: A server that asks for an adapter, and the rollout that sends it.
ADAPTED = VLLM.replace(
    "self.engine.generate(", "self.engine.generate(lora_request=ASKED if self.model_config.lora_rank else None, "
)
ROLLOUT = """
    def update_weights(engine, weights):
        engine.add_lora(weights)
"""

#: The same of a server that names the adapter in the request.
NAMED = SGLANG.replace(
    "            reply =", "            if self.lora_as_adapter:\n                ASKED\n            reply ="
)
SERVED = """
        @property
        def lora_as_adapter(self):
            return self.model_config.lora_rank > 0
"""

SETTING = "the trained adapter"

_FOLDER = "verl/workers/rollout"


def _bound(loads: Loads, **files: str) -> tuple[Target, dict[str, Boundary]]:
    vllm = files["vllm"]
    vllm = rewritten(vllm, SOUND)
    tree = {
        "verl/workers/config/__init__.py": CONFIG,
        f"{_FOLDER}/replica.py": OUTPUT,
        f"{_FOLDER}/vllm_rollout/vllm_async_server.py": vllm,
        f"{_FOLDER}/vllm_rollout/vllm_rollout.py": files.get("rollout", ROLLOUT),
        f"{_FOLDER}/sglang_rollout/async_sglang_server.py": files["sglang"],
    }
    target = loads(FRAMEWORK, tree)
    found = list(adapter_requests.boundaries(target))
    return target, {b.path.split(".")[3].partition("_")[0]: b for b in found if isinstance(b, Boundary)}


@pytest.mark.parametrize("sound", [True, False])
def test_adapter_that_is_asked_for(loads: Loads, sound: bool) -> None:
    """A request without the adapter is answered by the model that was there before training."""
    vllm = ADAPTED.replace("ASKED", "'adapter'" if sound else "None")
    sglang = NAMED.replace("ASKED", "request.lora_path = 'adapter'" if sound else "pass") + SERVED
    target, named = _bound(loads, vllm=vllm, sglang=sglang)
    assert set(named) == {"vllm", "sglang"}
    check_round_trips(target, list(named.values()))
    for boundary in named.values():
        check_verdict(CFG004, boundary, SETTING, target, found=not sound)


def test_servers_without_adapters(loads: Loads) -> None:
    """A rollout that sends no adapter has no such boundary."""
    assert not _bound(loads, vllm=VLLM, sglang=SGLANG, rollout="")[1]
