"""AReaL's supervised update and evaluation on several ranks, on a specimen of its engine in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, check_verdict, judged_at
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK, rank_updates
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002

ENGINE = """
    import torch
    import torch.distributed as dist

    class FSDPEngine:
        def parts(self, data):
            for cut in torch.arange(len(data["input_ids"])).tensor_split(self.config.mb_spec.n_mbs):
                keep = data["attention_mask"][cut].bool()
                yield {key: x[cut][keep] for key, x in data.items()}

        def weighted(self, data, loss_fn, loss_weight_fn, scale):
            parts = list(self.parts(data))
            total = sum(loss_weight_fn(part) for part in parts).float()
            if COUNTED:
                dist.all_reduce(total, group=GROUP)
            for part in parts:
                share = loss_weight_fn(part) / total * scale
                yield self._compute_logprobs_and_loss(self.model(**part).logits.squeeze(0), part, loss_fn, share)

        def train_batch(self, input_, loss_fn, loss_weight_fn):
            for loss in self.weighted(input_, loss_fn, loss_weight_fn, self.parallel_helper.dp_size):
                loss.backward()

        @torch.no_grad()
        def eval_batch(self, input_, loss_fn, loss_weight_fn):
            total = sum(self.weighted(input_, loss_fn, loss_weight_fn, 1))
            if REDUCED:
                dist.all_reduce(total, group=self.dp_group)
            return RESULT

        def _compute_logprobs_and_loss(self, logits, part, loss_fn, share):
            return loss_fn(*self._compute_logprobs_entropy(logits, part), part) * share
"""

TRAINER = """
    import torch
    from areal.utils import stats_tracker

    class LMEngine:
        def __init__(self, engine):
            self.engine = engine

        def _train_lm(self, data):
            self.run(self.engine.train_batch, data)

        def _evaluate_lm(self, data):
            self.run(self.engine.eval_batch, data)

        def run(self, method, data):
            data["loss_mask"] = data["loss_mask"].bool().roll(-1, 1)
            method(input_=data, loss_fn=loss, loss_weight_fn=lambda part: part["loss_mask"].count_nonzero())

    def loss(logprobs, entropy, part):
        stats_tracker.denominator(tokens=part["loss_mask"])
        stats_tracker.stat(loss=logprobs)
        return -torch.where(part["loss_mask"], logprobs, 0.0).sum() / part["loss_mask"].sum().clamp(min=1)
"""

TRACKER = """
    kept = {"tokens": [], "loss": []}

    def denominator(tokens):
        kept["tokens"].append(tokens.shape)

    def stat(loss):
        kept["loss"].append(loss.shape)
        if kept["tokens"] != kept["loss"]:
            raise AssertionError(kept)

    def export_all():
        for shapes in kept.values():
            shapes.clear()
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class MicroBatchSpec:
        n_mbs: int = 1

    @dataclass
    class TrainEngineConfig:
        mb_spec: MicroBatchSpec | None = None
"""

SOUND = {"COUNTED": "True", "GROUP": "self.dp_group", "REDUCED": "True", "RESULT": "total"}


def _bound(loads: Loads, **words: str) -> tuple[Target, list[Boundary]]:
    engine = ENGINE
    for name, word in {**SOUND, **words}.items():
        engine = engine.replace(name, word)
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG,
        "areal/engine/fsdp_engine.py": engine,
        "areal/trainer/sft/lm_engine.py": TRAINER,
        "areal/utils/stats_tracker.py": TRACKER,
    }
    target = loads(FRAMEWORK, files)
    return target, [b for b in rank_updates.boundaries(target) if isinstance(b, Boundary)]


def test_answers(loads: Loads) -> None:
    target, found = _bound(loads)
    assert [boundary.stage for boundary in found] == ["policy-loss", "metric"]
    assert answering({(b.stage, setting): b for b in found for setting in b.settings}, target) == []


@pytest.mark.parametrize("setting", ["data parallel", "tensor parallel"])
@pytest.mark.parametrize(("place", "law"), [(0, SPL002), (0, REF001), (1, MET005)])
def test_ranks_that_count_together(loads: Loads, place: int, law: Law, setting: str) -> None:
    target, found = _bound(loads)
    check_verdict(law, found[place], setting, target, found=False)


@pytest.mark.parametrize(
    ("words", "place", "law", "setting"),
    [
        ({"COUNTED": "False"}, 0, SPL002, "data parallel"),
        ({"GROUP": "None"}, 0, REF001, "tensor parallel"),
        ({"REDUCED": "False"}, 1, MET005, "data parallel"),
        ({"RESULT": "total if dist.get_rank() == 0 else total * 0"}, 1, MET005, "data parallel"),
    ],
    ids=["each rank counts alone", "copies are counted", "the loss of one rank", "only the first rank has the loss"],
)
def test_ranks_that_do_not(loads: Loads, words: dict[str, str], place: int, law: Law, setting: str) -> None:
    target, found = _bound(loads, **words)
    check_verdict(law, found[place], setting, target, found=True)


def test_metrics_of_a_failed_call_do_not_fail_others(loads: Loads) -> None:
    target, found = _bound(loads)
    target.find("areal.utils.stats_tracker.denominator")(torch.ones(7))
    assert judged_at(REF001, found[0], "data parallel", target).tried > 0


def test_round_trip(loads: Loads) -> None:
    target, found = _bound(loads)
    check_round_trips(target, found)
