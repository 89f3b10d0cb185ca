"""AReaL's batches, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, the_only
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK, batches
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

DATA = """
    import torch
    from torch.nn.functional import pad

    def concat_padded_tensors(parts):
        width = max(part["input_ids"].shape[1] for part in parts)

        def wide(one):
            return pad(one, (0, width - one.shape[1])) if one.dim() > 1 else one

        return {key: torch.cat([wide(part[key]) for part in parts]) for key in parts[0]}

    def concat_batch(parts):
        return concat_padded_tensors(parts), [len(part["rewards"]) for part in parts]

    def split_batch(batch, sizes):
        split = {key: value.split(sizes) for key, value in batch.items()}
        return [{key: value[n] for key, value in split.items()} for n in ORDER]
"""


@pytest.mark.parametrize(("order", "found"), [("range(len(sizes))", False), ("reversed(range(len(sizes)))", True)])
def test_batches(loads: Loads, order: str, found: bool) -> None:
    """What is split again has the order of the batch."""
    target = loads(FRAMEWORK, {"areal/utils/data.py": DATA.replace("ORDER", order)})
    boundary = the_only(batches.boundaries(target))
    assert answering({("batches", "default"): boundary}, target) == []
    check_verdict(PLC004, boundary, "default", target, found=found)


@pytest.mark.slow
def test_round_trip(loads: Loads) -> None:
    target = loads(FRAMEWORK, {"areal/utils/data.py": DATA.replace("ORDER", "range(len(sizes))")})
    check_round_trips(target, [one for one in batches.boundaries(target) if isinstance(one, Boundary)])
