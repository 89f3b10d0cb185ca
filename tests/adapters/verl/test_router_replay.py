"""verl's replay of experts on Megatron, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, router_replay
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

PATCH = """
    from megatron.core.transformer.moe.router import TopKRouter

    class RouterReplay:
        router_instances = []

        def __init__(self):
            self.target_topk_idx = None
            self.router_instances.append(self)

    def apply_router_replay_patch():
        print("The routers are changed.")
        original = TopKRouter.__init__

        def changed(self, config):
            original(self, config)
            self.router_replay = RouterReplay()

        TopKRouter.__init__ = changed
"""

SET = """
    from megatron.core import parallel_state as mpu
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
    from verl.utils.megatron.router_replay_patch import RouterReplay

    def set_router_replay_data(layers_topk_idx, attention_mask, tf_config, vp_rank=None, model=None):
        rows = layers_topk_idx.values() if PACKED else layers_topk_idx[attention_mask]
        if mpu.get_pipeline_model_parallel_rank() >= tf_config.pipeline_model_parallel_size:
            raise ValueError("the stage does not exist")
        offset = get_transformer_layer_offset(tf_config, vp_stage=CHUNK)
        dense = 0 if tf_config.moe_layer_freq == 1 else tf_config.moe_layer_freq.count(0)
        whole = rows.shape[1] == tf_config.num_layers
        for n, router in enumerate(model.decoder):
            layer = router.layer_number - 1
            router.router_replay.target_topk_idx = rows[:, PLACE]
"""

PLACE = "layer if whole else layer - dense"

#: The settings with several stages or chunks, and those with a dense layer whose routes are of all layers.
STAGED = {name for name in router_replay.SETTINGS if "stage" in name}
DENSE = {name for name in router_replay.SETTINGS if "dense" in name and "recorded" not in name}


def _bound(
    loads: Loads, place: str = PLACE, packed: str = "layers_topk_idx.is_nested", chunk: str = "vp_rank"
) -> tuple[Target, Boundary]:
    tree = files()
    tree["verl/utils/megatron/router_replay_patch.py"] = PATCH
    tree["verl/utils/megatron/router_replay_utils.py"] = (
        SET.replace("PLACE", place).replace("PACKED", packed).replace("CHUNK", chunk)
    )
    target = loads(FRAMEWORK, tree)
    return target, the_only(router_replay.boundaries(target))


@pytest.mark.parametrize("packed", ["layers_topk_idx.is_nested", "attention_mask is None"])
def test_answers_and_reads_back(loads: Loads, packed: str) -> None:
    """Lengths survive the round trip, in packed and in padded sequences."""
    target, boundary = _bound(loads, packed=packed)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (PLACE, set()),
        ("layer - dense", DENSE),  # by the number of the router
        ("n + offset if whole else layer - dense", {"a dense layer"}),  # by its place in its stage
        ("n", STAGED | DENSE),
        ("min(layer, rows.shape[1] - 1)", {name for name in router_replay.SETTINGS if "recorded" in name}),
        ("slice(layer, layer + 2)", set(router_replay.SETTINGS)),  # the routes of two layers
    ],
)
def test_routes_of_other_layers(loads: Loads, place: str, wrong: set[str]) -> None:
    target, boundary = _bound(loads, place)
    for name in boundary.settings:
        check_verdict(TOK001, boundary, name, target, found=name in wrong)


def test_routes_of_the_first_chunk(loads: Loads) -> None:
    """All chunks get the routes of the first one."""
    target, boundary = _bound(loads, "n + offset if whole else layer - dense", chunk="0")
    check_verdict(TOK001, boundary, "second stage in chunks", target, found=True)


PACK = """
    import torch

    def preprocess_thd_engine(rows, use_fp8_padding=False):
        packed = []
        for row in rows.unbind():
            more = -len(row) % 4 if use_fp8_padding else 0
            packed += [row, row.new_zeros(more, *row.shape[1:])]
        return torch.cat(packed), None
"""


@pytest.mark.parametrize(("padded", "found"), [('tf_config.fp8 == "hybrid"', False), ("False", True), ("True", False)])
def test_routes_of_padded_sequences(loads: Loads, padded: str, found: bool) -> None:
    """In FP8, a router gets routes with the padding that the model's tokens have."""
    packed = f"preprocess_thd_engine(layers_topk_idx, use_fp8_padding={padded})[0]"
    source = SET.replace("PLACE", PLACE).replace("CHUNK", "vp_rank")
    source = source.replace("layers_topk_idx.values() if PACKED", f"{packed} if layers_topk_idx.is_nested")
    tree = files()
    tree["verl/utils/megatron/router_replay_patch.py"] = PATCH
    tree["verl/utils/megatron/router_replay_utils.py"] = PACK + source
    target = loads(FRAMEWORK, tree)
    bound = the_only(router_replay.boundaries(target))
    (setting,) = router_replay.FP8
    check_verdict(TOK001, bound, setting, target, found=found)
    check_verdict(TOK001, bound, "a dense layer", target, found=padded == "True")


def test_packing_without_a_mask(loads: Loads) -> None:
    """A function that packs padded rows is not asked for the places of nested ones."""
    other = "    def preprocess_packed_seqs(rows, attention_mask, use_fp8_padding=False):\n        raise TypeError\n"
    source = SET.replace("PLACE", PLACE).replace("CHUNK", "vp_rank")
    packed = "preprocess_thd_no_padding(layers_topk_idx, use_fp8_padding=bool(tf_config.fp8))[0]"
    source = source.replace("layers_topk_idx.values() if PACKED", f"{packed} if layers_topk_idx.is_nested")
    masked = "preprocess_packed_seqs(layers_topk_idx, attention_mask)[0]"
    source = source.replace("layers_topk_idx[attention_mask]", masked)
    tree = files() | {"verl/utils/megatron/router_replay_patch.py": PATCH}
    pack = PACK.replace("preprocess_thd_engine", "preprocess_thd_no_padding")
    tree["verl/utils/megatron/router_replay_utils.py"] = pack + other + source
    target = loads(FRAMEWORK, tree)
    (setting,) = router_replay.FP8
    check_verdict(TOK001, the_only(router_replay.boundaries(target)), setting, target, found=False)


def test_releases_without_replay(loads: Loads) -> None:
    """Have no such boundary."""
    assert not list(router_replay.boundaries(loads(FRAMEWORK, files())))
