"""verl's aggregation over ranks and micro-batches, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, bound, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.law import Law
from rl_sentinel.laws.masked_value_spreads import LAW as MSK004
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002

CORE = "verl/trainer/ppo/core_algos.py"

HEAD = "def agg_loss(loss_mat, loss_mask, loss_agg_mode):"

WITH_COUNTS = """def agg_loss(
        loss_mat, loss_mask, loss_agg_mode, dp_size=1, batch_num_tokens=None, global_batch_size=None
    ):
        if batch_num_tokens is not None and loss_agg_mode == "token-mean":
            return (loss_mat * loss_mask).sum() * COUNT"""


def _tree(count: str) -> dict[str, str]:
    tree = files()
    tree[CORE] = tree[CORE].replace(HEAD, WITH_COUNTS.replace("COUNT", count))
    return tree


@pytest.mark.parametrize(
    ("law", "count", "found"),
    [
        (SPL002, "dp_size / batch_num_tokens", False),
        (SPL002, "1 / batch_num_tokens", True),
        (SPL001, "dp_size / batch_num_tokens", False),
        (SPL001, "dp_size / loss_mask.sum().clamp(min=1)", True),
    ],
)
def test_counts_of_all_parts(loads: Loads, law: Law, count: str, found: bool) -> None:
    """Ranks are averaged, so that a loss is multiplied by their number, and divided by the tokens of all parts."""
    target = loads(FRAMEWORK, _tree(count))
    boundary = bound(FRAMEWORK, target)["agg_loss", "token-mean, in parts"]
    check_verdict(law, boundary, "token-mean, in parts", target, found=found)


MEAN = """
    import torch

    def masked_mean(values, mask, axis=None):
        \"\"\"The mean over elements selected by the mask.\"\"\"
        return (KEPT * mask).sum(axis) / (mask.sum(axis) + 1e-8)
"""


@pytest.mark.parametrize(("kept", "found"), [("torch.where(mask.bool(), values, 0.0)", False), ("values", True)])
def test_mean_of_selected_elements(loads: Loads, kept: str, found: bool) -> None:
    """A mean that multiplies by the mask is NaN where an element that it does not select is."""
    tree = files() | {"verl/utils/torch_functional.py": MEAN.replace("KEPT", kept)}
    target = loads(FRAMEWORK, tree)
    boundary = bound(FRAMEWORK, target)["masked_mean", "default"]
    check_round_trips(target, [boundary])
    check_verdict(MSK004, boundary, "default", target, found=found)


def test_mean_without_a_statement(loads: Loads) -> None:
    """A release that does not say so is not held to it."""
    tree = files() | {"verl/utils/torch_functional.py": MEAN.replace("selected by", "and").replace("KEPT", "values")}
    assert ("masked_mean", "default") not in bound(FRAMEWORK, loads(FRAMEWORK, tree))


def test_parts_read_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target = loads(FRAMEWORK, _tree("dp_size / batch_num_tokens"))
    parts = [b for (_, setting), b in bound(FRAMEWORK, target).items() if setting.endswith("in parts")]
    assert len(parts) == 2
    check_round_trips(target, parts)
