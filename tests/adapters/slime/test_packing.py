"""slime's packed micro-batches and replayed experts, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.slime import FRAMEWORK, packing, routing_replay
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.layout import Layout
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

DATA = """
    import torch
    from megatron.core import mpu
    from megatron.core.packed_seq_params import PackedSeqParams

    class DataIterator:
        def __init__(self, rollout_data, micro_batch_indices):
            self.data, self.indices, self.next = rollout_data, micro_batch_indices, 0

        def reset(self):
            self.next = 0

        def get_next(self, keys):
            rows = self.indices[self.next]
            self.next += 1
            return {key: [self.data[key][row] for row in rows] if key in self.data else None for key in keys}

    def of_rank(row):
        ranks, rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
        if ranks == 1:
            return row
        chunk = -(-len(row) // (2 * ranks))
        row = torch.cat([row, row.new_zeros(2 * ranks * chunk - len(row), *row.shape[1:])])
        chunks = row.split(chunk)
        return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])

    def padded(rows, multiple):
        whole = torch.cat(rows)
        return torch.cat([whole, whole.new_zeros(-len(whole) % multiple, *whole.shape[1:])])

    def get_batch(data_iterator, keys, pad_multiplier=128):
        batch = data_iterator.get_next(keys)
        sizes = zip(batch["loss_masks"], batch["total_lengths"], batch["response_lengths"])
        masks = [torch.cat([m.new_zeros(t - r - AHEAD), m, m.new_zeros(AHEAD)]) for m, t, r in sizes]
        batch["full_loss_masks"] = padded([of_rank(mask) for mask in masks], pad_multiplier)[None]
        batch["tokens"] = padded([of_rank(row) for row in batch["tokens"]], pad_multiplier)[None]
        batch["packed_seq_params"] = PackedSeqParams(cu_seqlens_q=torch.zeros(1).cuda())
        return batch
"""

REPLAY = """
    class RoutingReplay:
        all_routing_replays = []
"""

ACTOR = """
    import torch
    from slime.backends.megatron_utils.data import of_rank, padded
    from slime.utils.routing_replay import RoutingReplay

    class MegatronTrainRayActor:
        def fill_routing_replay(self, data_iterator, num_microbatches, rollout_data):
            from megatron.core.transformer.transformer_block import get_num_layers_to_build

            for _ in range(sum(num_microbatches)):
                rows = data_iterator[0].get_next(["rollout_routed_experts", "tokens"])["rollout_routed_experts"]
                if FILLED:
                    rows = [torch.cat([row, row[-1:]]) for row in rows]
                experts = padded([of_rank(row) for row in rows], self.args.data_pad_size_multiplier)
                config = self.model[0].module.config
                layers = [n for n in range(get_num_layers_to_build(config)) if config.moe_layer_freq[n]]
                for replay, layer in zip(RoutingReplay.all_routing_replays, layers, strict=True):
                    replay.record(experts[:, layer])
"""


def _load(loads: Loads, *, ahead: int = 1, filled: bool = True) -> tuple[Target, list[Boundary]]:
    files = {
        "slime/backends/megatron_utils/data.py": DATA.replace("AHEAD", str(ahead)),
        "slime/backends/megatron_utils/actor.py": ACTOR.replace("FILLED", str(filled)),
        "slime/utils/routing_replay.py": REPLAY,
    }
    target = loads(FRAMEWORK, files)
    return target, [b for m in (packing, routing_replay) for b in m.boundaries(target) if isinstance(b, Boundary)]


def test_two_responses_by_hand(loads: Loads) -> None:
    """Tokens, masks and replayed experts of two micro-batches, each in one packed stream, and shared by two ranks."""
    target, (packed, replayed) = _load(loads)
    mask = torch.tensor([[True, False, True], [True, False, False]])
    length = torch.tensor([3, 1])
    batch = batch_of(
        mask, token=torch.tensor([[5, 6, 7], [8, 0, 0]]), length=length, prompt_length=torch.tensor([2, 3])
    )
    for setting in packed.settings:
        case = Case(batch, setting=setting, layout=Layout(micro_batches=2))
        values = execute(target, packed, inputs_of(packed, case)).values
        assert values["token"][0].tolist() == [5, 6, 7]
        assert values["token"][1, 0].item() == 8
        assert values["mask"][0].tolist() == [True, False, True]
        assert values["mask"][1, 0].item() is True
        tokens = execute(target, replayed, inputs_of(replayed, case)).values["token"]
        assert tokens[0].tolist() == [5, 6, 7]
        assert tokens[1, 0].item() == 8


def test_round_trips(loads: Loads) -> None:
    """What is put into the arguments is read back from them."""
    target, found = _load(loads)
    check_round_trips(target, found)


@pytest.mark.parametrize(("ahead", "found"), [(1, False), (0, True)])
def test_mask_beside_its_tokens(loads: Loads, ahead: int, found: bool) -> None:
    """A mask that stands at its tokens, and not at the places that predict them, is found."""
    target, (packed, _) = _load(loads, ahead=ahead)
    check_verdict(PLC004, packed, "default", target, found=found)


@pytest.mark.parametrize("setting", ["default", "context parallel"])
@pytest.mark.parametrize(("filled", "found"), [(True, False), (False, True)])
def test_experts_of_the_next_sample(loads: Loads, filled: bool, found: bool, setting: str) -> None:
    """The last token has no experts; if its place is not filled, those of the next sample move up."""
    target, (_, replayed) = _load(loads, filled=filled)
    check_verdict(PLC004, replayed, setting, target, found=found)


def test_revisions_without_it(loads: Loads) -> None:
    """A revision without the function has no boundary, and one without replay has the packing alone."""
    target = loads(FRAMEWORK, {"slime/backends/megatron_utils/data.py": DATA.replace("AHEAD", "1")})
    (packed,) = [b for m in (packing, routing_replay) for b in m.boundaries(target) if isinstance(b, Boundary)]
    batch = batch_of(torch.ones(1, 2, dtype=torch.bool), token=torch.tensor([[3, 4]]))
    assert outputs_of(target, packed, "default", batch)["token"].tolist() == [[3, 4]]
