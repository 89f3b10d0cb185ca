"""verl's export of Megatron's weights, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.megatron_weights import KINDS, boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

EXPORT = """
    import torch
    import torch.distributed as dist
    from megatron.core import mpu

    def unwrap_model(model):
        raise TypeError(model)

    def per_tensor_generator(actor_module, model_config, weight_converter, transformer_config, layer_name_mapping):
        from megatron.core import parallel_state

        group = parallel_state.get_pipeline_model_parallel_group()
        ranks = [None] * mpu.get_pipeline_model_parallel_world_size()
        for chunk in actor_module:
            tensors = dict(NAMED)
            dist.all_gather_object(object_list=ranks, obj=list(tensors), group=group)
            for name in [name for names in ranks for name in names]:
                tensor = tensors[name].to(torch.cuda.current_device())
                dist.broadcast(tensor=tensor, src=dist.get_global_rank(group=group, group_rank=0), group=group)
                yield from zip(*weight_converter.convert_param(name, [tensor]))
"""

CONVERTER = """
    class McoreToHFWeightConverterDpskv3:
        def __init__(self, hf_config, mcore_config):
            assert not hf_config.tie_word_embeddings and mcore_config.pipeline_model_parallel_size == 1

        def convert_param(self, name, params):
            layer, last = name.split(".")[2], name.rpartition(".")[2]
            names = {"weight": "weight", "expert_bias": "e_score_correction_bias"}
            return [f"model.layers.{LAYER}.mlp.gate.{names[last]}"], params
"""

SOUND = {"NAMED": "unwrap_model(chunk).state_dict()", "LAYER": "layer"}

CALLER = "def rollout_mode(module, *config):\n    return per_tensor_generator(module, *config)\n"


def _bound(loads: Loads, caller: str = CALLER, **broken: str) -> tuple[Target, list[Boundary]]:
    words = SOUND | broken
    target = loads(
        FRAMEWORK,
        {
            "verl/__init__.py": "",
            "verl/utils/megatron_utils.py": rewritten(EXPORT, {"NAMED": words["NAMED"]}),
            "verl/models/mcore/weight_converter.py": rewritten(CONVERTER, {"LAYER": words["LAYER"]}),
            "verl/workers/megatron_workers.py": caller,
        },
    )
    return target, [one for one in boundaries(target) if isinstance(one, Boundary)]


def test_answers(loads: Loads) -> None:
    target, found = _bound(loads)
    assert set(the_only(iter(found)).settings) == set(KINDS)
    check_calls(target, found)


def test_an_export_that_nobody_calls_is_left_out(loads: Loads) -> None:
    _, found = _bound(loads, caller="")
    assert not found


@pytest.mark.parametrize("setting", list(KINDS))
@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"NAMED": "unwrap_model(chunk).named_parameters()"}, {"biases of experts"}),
        ({"LAYER": "0"}, set(KINDS)),
    ],
)
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], where: set[str]) -> None:
    """Buffers that are left out, and a layer that gets the weights of another one."""
    target, found = _bound(loads, **broken)
    check_verdict(PLC004, the_only(iter(found)), setting, target, found=setting in where)
