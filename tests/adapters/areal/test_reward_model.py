"""The update of a reward model on pairs, through the engine of AReaL's specimen."""

import math

import pytest
import torch

from adapters.areal.test_updates import _files
from adapters.checks import Loads, check_verdict, outputs_of, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK, reward_model
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

RW = """
    import torch
    from areal.utils import stats_tracker

    class RWEngine:
        def __init__(self, engine):
            self.engine = engine

        def train_rw(self, data):
            width = max(one["input_ids"].shape[1] for one in data)
            wide = lambda x: torch.nn.functional.pad(x.long(), (0, width - x.shape[1]))
            batch = {name: torch.cat([wide(one[name]) for one in data]) for name in data[0]}
            batch["last"] = batch["attention_mask"].bool() & (batch["attention_mask"].cumsum(1) == LAST)
            self.engine.train_batch(batch, pair_loss, WEIGHT)

    def pair_loss(scores, part):
        first, second = scores[part["last"]].view(-1, 2).unbind(1)
        one = torch.ones(len(first), dtype=torch.bool)
        names = {"correct_ratio": (RIGHT).float(), "pos_score": first, "neg_score": second}
        stats_tracker.average(mask=one, **{f"rw/{name}/avg": x for name, x in names.items()})
        return -torch.nn.functional.logsigmoid(first - second).mean()
"""

COLLATE = """
    import torch

    def rw_modeling_collate_fn(items):
        rows = [torch.tensor(item[name])[None] for item in items for name in ("chosen_ids", "rejected_ids")]
        return [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in rows]
"""

LAST = 'batch["attention_mask"].sum(1, keepdim=True)'
RIGHT = "first > second"
WEIGHT = "lambda part: part['last'].sum()"


def _bound(loads: Loads, last: str = LAST, right: str = RIGHT, weight: str = WEIGHT) -> tuple[Target, Boundary]:
    files = _files()
    files["areal/engine/fsdp_engine.py"] = (
        files["areal/engine/fsdp_engine.py"]
        .replace(
            ".tensor_split(self.config.mb_spec.n_mbs)",
            ".view(-1, self.config.mb_spec.granularity).tensor_split(self.config.mb_spec.n_mbs)",
        )
        .replace("keep = ", "cut = cut.flatten()\n                keep = ")
    )
    files["areal/api/cli_args.py"] = files["areal/api/cli_args.py"].replace(
        "n_mbs: int = 1", "n_mbs: int = 1\n        granularity: int = 1"
    )
    files["areal/trainer/rw_trainer.py"] = COLLATE
    files["areal/trainer/rw/rw_engine.py"] = RW.replace("LAST", last).replace("RIGHT", right).replace("WEIGHT", weight)
    target = loads(FRAMEWORK, files)
    return target, the_only(reward_model.boundaries(target))


def test_by_hand(loads: Loads) -> None:
    """Scores -2 and -4: the log-sigmoid of 2."""
    target, boundary = _bound(loads)
    check_round_trip(target, boundary)
    logprob = torch.tensor([[-2.0, 0.0], [-1.0, -3.0]])
    batch = batch_of(torch.tensor([[True, False], [True, True]]), logprob=logprob, length=torch.tensor([1, 2]))
    answer = outputs_of(target, boundary, "reward model", batch)
    assert answer["loss"].item() == pytest.approx(math.log1p(math.exp(-2)))
    assert answer["pos_score/avg"].item() == pytest.approx(-2)


CASES: list[tuple[Law, dict[str, str]]] = [
    (REF001, {"last": "1"}),
    (REF001, {"right": "first > second - 100"}),
    (SPL001, {"weight": "lambda part: torch.tensor(float(part['last'].numel()))"}),
]


@pytest.mark.parametrize(("law", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, broken: dict[str, str], found: bool) -> None:
    """The score at the first token, an accuracy that is always 1, micro-batches weighted by their tokens."""
    target, boundary = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundary, "reward model", target, found=found)


def test_a_release_that_cannot_train(loads: Loads) -> None:
    """The padded batch of the collator has no lengths of packed sequences."""
    files = _files()
    files["areal/trainer/rw_trainer.py"] = COLLATE
    files["areal/trainer/rw/rw_engine.py"] = """
    class RWEngine:
        def train_rw(self, data): ...

        def _train_rw(self, data):
            return _rw_loss_weight(data)

    def _rw_loss_weight(data):
        return data["cu_seqlens"]
"""
    assert list(reward_model.boundaries(loads(FRAMEWORK, files))) == []
