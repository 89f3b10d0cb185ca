"""Weights that verl's workers send to the engine that samples, on a specimen in words of our own."""

import json
from typing import Any

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, engine_weights
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

UTILITIES = """
    from contextlib import contextmanager

    from torch.distributed.fsdp import FSDPModule

    def whole(weight):
        return weight.full_tensor() if hasattr(weight, "full_tensor") else weight.detach().clone()

    def adapter_of(module, layered):
        from peft.utils.save_and_load import get_peft_model_state_dict

        if not layered:
            return {name: whole(one) for name, one in get_peft_model_state_dict(module).items()}
        found = {}
        for name, part in module.named_modules():
            if name and isinstance(part, FSDPModule):
                state = get_peft_model_state_dict(module, state_dict=part.state_dict())
                found |= {f"{PREFIX}.{key}": whole(one) for key, one in state.items()}
        return found

    @contextmanager
    def merged(module):
        from peft.tuners.lora import LoraLayer

        layers = [one for one in module.modules() if isinstance(one, LoraLayer)]
        for layer in layers:
            layer.merge()
        yield
        for layer in layers:
            layer.unmerge()

    def plain(name):
        return name.replace("base_model.model.", "").replace(".base_layer", "")
"""

ENGINE = """
    from torch.distributed.tensor import DTensor
    from verl.utils.fsdp_utils import adapter_of, merged, plain, whole

    def of_base(state):
        return {plain(name): weight for name, weight in state.items() if "lora_" not in name}

    class FSDPEngine:
        def get_per_tensor_param(self, layered_summon=False, base_sync_done=False):
            merges = self.model_config.lora.get("merge", False)
            peft_config = None if merges else getattr(self.module, "peft_config", None)
            if merges:
                return self.merged_weights(), None
            if peft_config and base_sync_done:
                return adapter_of(self.module, layered_summon).items(), {"r": 1}
            state = of_base(self.module.state_dict())
            return ((name, whole(weight)) for name, weight in state.items()), {"r": 1} if peft_config else None

        def merged_weights(self):
            with merged(self.module):
                state = of_base(self.module.state_dict())
                LAZY
            for name, weight in state.items():
                yield name, whole(weight)
"""

WORKER = """
    from verl.utils.device import set_expandable_segments

    class ActorRolloutRefWorker:
        async def update_weights(self, global_steps=None):
            set_expandable_segments(False)
            engine, backend = self.actor.engine, self.config.rollout.checkpoint_engine.backend
            if backend != "naive":
                weights, config = engine.get_per_tensor_param()
                await self.checkpoint_engine.send_weights(weights, global_steps=global_steps)
                if ALONE and config:
                    weights, _ = engine.get_per_tensor_param(base_sync_done=True)
                    await self.checkpoint_engine.send_weights(weights, global_steps=global_steps)
                return
            await self.rollout.resume(tags=["weights"])
            done = self.base_sync_done
            weights, peft_config = engine.get_per_tensor_param(layered_summon=self.layered_summon, base_sync_done=done)
            if ONCE and self.sent:
                return
            self.sent = True
            await self.rollout.update_weights(weights, peft_config=peft_config, base_sync_done=done)
"""
DEVICE = """
    def set_expandable_segments(use):
        raise RuntimeError("no device")
"""
EARLIER = """
    class ActorRolloutRefWorker:
        async def rollout_mode(self):
            module, done = self.actor_module_fsdp, self.base_sync_done
            peft_config = getattr(module, "peft_config", None)
            state = module.state_dict()
            base = {n.replace("base_model.model.", ""): one for n, one in state.items() if "lora_" not in n}
            if peft_config and BASE:
                await self.rollout.update_weights([(n, one.full_tensor()) for n, one in base.items()])
            if peft_config:
                state = {n.replace(".default", ""): one for n, one in state.items() if "lora_" in n}
            weights = [(name, one.full_tensor()) for name, one in state.items()]
            await self.rollout.update_weights(weights, peft_config=peft_config, base_sync_done=DONE)
"""

SOUND = {
    "LAZY": "yield from [(name, whole(weight)) for name, weight in state.items()]; return",
    "PREFIX": "name",
    "ALONE": "True",
    "ONCE": "False",
    "BASE": "self.rollout.sleep_level == 2",
    "DONE": "done",
}
CONFIG: dict[str, Any] = {"actor_rollout_ref": {"rollout": {"checkpoint_engine": {"backend": "naive"}}}}

_ADAPTED = "weights, adapters, separate engines"


def _bound(loads: Loads, **words: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    files = {
        "verl/utils/fsdp_utils.py": UTILITIES,
        "verl/utils/device.py": DEVICE,
        "verl/workers/engine/fsdp/transformer_impl.py": ENGINE,
        "verl/workers/engine_workers.py": WORKER,
        "verl/workers/fsdp_workers.py": EARLIER,
    }
    files = {path: rewritten(source, SOUND | words) for path, source in files.items()}
    more = {"verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG), "omegaconf/__init__.py": OMEGACONF}
    target = loads(FRAMEWORK, files | more)
    found = [one for one in engine_weights.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.path.rpartition(".")[2], next(iter(one.settings))): one for one in found}


def test_answers(loads: Loads) -> None:
    target, every = _bound(loads)
    newest = {("update_weights", name) for name in engine_weights.FAMILIES}
    assert set(every) == newest | {("rollout_mode", name) for name in ("weights", "weights, adapters")}
    assert answering(every, target) == []


@pytest.mark.slow
def test_reads_back(loads: Loads) -> None:
    target, every = _bound(loads)
    check_round_trips(target, every.values())


@pytest.mark.parametrize(
    ("place", "setting", "broken"),
    [
        ("update_weights", "weights", {"ONCE": "getattr(self, 'sent', False)"}),
        ("update_weights", "weights, adapters", {"ONCE": "getattr(self, 'sent', False)"}),
        ("update_weights", "weights, merged adapters", {"LAZY": "pass"}),
        ("update_weights", "weights, adapters by layer", {"PREFIX": "name.rpartition('.')[0]"}),
        ("update_weights", _ADAPTED, {"ALONE": "False"}),
        ("rollout_mode", "weights, adapters", {"BASE": "False"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_weights_that_sample(loads: Loads, place: str, setting: str, broken: dict[str, str], *, found: bool) -> None:
    """The engine has the weights of the step: whole, with adapters, and with adapters merged into them."""
    target, every = _bound(loads, **(broken if found else {}))
    check_verdict(PLC004, every[place, setting], setting, target, found=found)


@pytest.mark.parametrize(
    ("base", "found"),
    [
        ("self.force_reload", False),
        ("not self.force_reload", True),
        ("self.force_reload and not done", False),
        ("self.force_reload and done", True),
    ],
)
def test_workers_that_reload(loads: Loads, base: str, found: bool) -> None:
    """In September 2025 a worker knows by ``force_reload`` that the engine discards its weights, sent or not."""
    target, every = _bound(loads, BASE=base, DONE="True")
    check_verdict(PLC004, every["rollout_mode", "weights, adapters"], "weights, adapters", target, found=found)
