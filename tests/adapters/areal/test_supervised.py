"""The supervised loss of AReaL's call shape, from log-probs and from logits, in words of our own."""

from math import exp

import pytest
import torch

from adapters.areal.test_updates import TRACKER
from adapters.checks import Loads, check_verdict, outputs_of, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.supervised import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.degenerate_batch_not_finite import LAW as DEG001

LOSS = """
    import torch
    from areal.utils import stats_tracker

    def compute_packed_sft_loss(ARGUMENTS, input_):
        loss_mask, ends = input_["loss_mask"].bool(), input_["cu_seqlens"].tolist()
        mask = ROLLED
        if FROM_LOGITS:
            logprobs = logits.log_softmax(-1).gather(1, input_["input_ids"].roll(-1).long().unsqueeze(1)).squeeze(1)
        rows = [(logprobs[a:b], mask[a:b]) for a, b in zip(ends, ends[1:])]
        mean = torch.stack([x[m].sum() / (m.sum().clamp(min=1) if SKIPS else m.sum()) for x, m in rows])
        live = torch.tensor([bool(m.any()) or not SKIPS for _, m in rows])
        stats_tracker.average(mask=live, **{"ppl/avg": (-mean).exp()})
        stats_tracker.average(mask=mask, **{"loss/avg": -logprobs})
        return -torch.where(mask, logprobs, 0.0).sum() / mask.sum()
"""


def _bound(loads: Loads, *, from_logits: bool, skips: bool = True) -> tuple[Target, Boundary]:
    source = LOSS.replace("ARGUMENTS", "logits" if from_logits else "logprobs, entropy")
    source = source.replace("FROM_LOGITS", str(from_logits)).replace("SKIPS", str(skips))
    source = source.replace("ROLLED", "torch.roll(loss_mask, -1)" if from_logits else "loss_mask")
    tree = {"areal/trainer/sft/lm_engine.py": source, "areal/utils/stats_tracker.py": TRACKER}
    target = loads(FRAMEWORK, {"areal/__init__.py": "", **tree})
    return target, the_only(boundaries(target))


def test_by_hand(loads: Loads) -> None:
    """Perplexity by sequence, the loss by token."""
    target, boundary = _bound(loads, from_logits=False)
    mask = torch.tensor([[True, True], [True, False]])
    batch = batch_of(mask, logprob=torch.tensor([[-1.0, -3.0], [-5.0, -9.0]]), prompt_length=torch.tensor([1, 2]))
    outputs = outputs_of(target, boundary, "default", batch)
    assert outputs["loss"].item() == pytest.approx(3.0)
    assert outputs["ppl/avg"].item() == pytest.approx((exp(2) + exp(5)) / 2)


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize(("skips", "found"), [(True, False), (False, True)])
def test_sequence_without_trained_token(loads: Loads, from_logits: bool, skips: bool, found: bool) -> None:
    """A sequence of padding has no perplexity, and makes that of the others NaN."""
    target, boundary = _bound(loads, from_logits=from_logits, skips=skips)
    check_verdict(DEG001, boundary, "default", target, found=found)


@pytest.mark.parametrize("from_logits", [True, False])
def test_round_trip(loads: Loads, from_logits: bool) -> None:
    check_round_trip(*_bound(loads, from_logits=from_logits))
