"""AReaL's update of an adapter at vLLM's workers, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.engine_workers import boundaries
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

PATH = "areal/engine/vllm_ext/vllm_worker_extension.py"

WORKER = """
    import torch
    import torch.distributed
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper
    from vllm.logger import init_logger

    logger = init_logger("worker")
    init_custom_process_group = None

    class VLLMWorkerExtension:
        def areal_init_update_weight_group(self, group_name, backend, world_size, **_address):
            groups = vars(self).setdefault("groups", {})
            groups[group_name] = init_custom_process_group(backend=backend, group_name=group_name)
            self.parts = {}

        def areal_set_weight_meta_lora(self, names, shapes, group_name, lora_int_id, lora_rank, **_about):
            self.names, self.shapes, self.group = names, shapes, group_name
            self.number, self.rank = lora_int_id, lora_rank

        def areal_update_weight_lora_xccl(self):
            logger.info("an update")
            received = {}
            for name, shape in zip(self.names, self.shapes):
                tensor = torch.empty(shape, device=self.model_runner.device)
                torch.distributed.broadcast(tensor, src=0, group=self.groups[self.group], async_op=False)
                received[RENAMED] = tensor
            self.parts |= received
            if WAITS:
                return True, "stored"
            manager = self.model_runner.lora_manager
            manager.remove_adapter(self.number)
            helper = PEFTHelper.from_dict({"r": self.rank})
            adapter = LoRAModel.from_lora_tensors(lora_model_id=self.number, tensors=SENT, peft_helper=helper)
            manager._adapter_manager._add_adapter(adapter)
            return manager._adapter_manager.activate_adapter(adapter.id), "replaced"
"""

SOUND = {"RENAMED": 'name.replace("default.", "")', "WAITS": "False", "SENT": "self.parts"}
MEGATRON = """
    class MegatronEngine:
        def initialize(self):
            self.adapted = self.config.use_lora
"""

ONE, TWO = "one pipeline stage", "two pipeline stages"


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, set()),
        ({"WAITS": "self.group != list(self.groups)[-1]"}, set()),
        ({"SENT": "received"}, {TWO}),  # the last stage's layers alone
        ({"RENAMED": "name"}, {ONE, TWO}),
        ({"WAITS": "len(self.groups) > 1"}, {TWO}),  # the former weights stay
    ],
)
def test_weights_of_an_adapter(loads: Loads, broken: dict[str, str], found: set[str]) -> None:
    target = loads(FRAMEWORK, {PATH: rewritten(WORKER, SOUND | broken), "areal/engine/megatron_engine.py": MEGATRON})
    bound = the_bound(boundaries(target))
    check_round_trip(target, bound)
    for setting in (ONE, TWO):
        check_verdict(PLC004, bound, setting, target, found=setting in found)


def test_engines_without_adapters_have_one_stage(loads: Loads) -> None:
    engine = MEGATRON.replace("use_lora", "other")
    for megatron in ({}, {"areal/engine/megatron_engine.py": engine}):
        bound = the_bound(boundaries(loads(FRAMEWORK, {PATH: rewritten(WORKER, SOUND), **megatron})))
        assert list(bound.settings) == [ONE]


def test_a_release_without_adapters(loads: Loads) -> None:
    source = WORKER.replace("areal_update_weight_lora_xccl", "areal_update_weight_xccl")
    assert list(boundaries(loads(FRAMEWORK, {PATH: rewritten(source, SOUND)}))) == []
