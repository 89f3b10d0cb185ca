"""DPO of AReaL's call shape in words of our own: packed pairs, an unshifted mask, logged rewards."""

from math import exp, log

import pytest
import torch

from adapters.areal.test_updates import TRACKER
from adapters.checks import Loads, by_setting, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.preferences import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

LOSS = """
    import torch
    from areal.utils import stats_tracker

    def compute_dpo_loss(logprobs, entropy, input_, *, beta, loss_type):
        ends, mask = input_["cu_seqlens"].tolist(), input_["loss_mask"].float()
        delta, rows, sums = logprobs - input_["ref_logprobs"], [], []
        for a, b in zip(ends, ends[1:]):
            trained = mask[a + SHIFT : b]
            sums.append((delta[a : a + len(trained)] * trained).sum())
            rows.append(sums[-1] / trained.sum() if loss_type == "ipo" else sums[-1])
        gap = torch.stack(rows[::2]) - torch.stack(rows[1::2])
        size = torch.stack(sums) * beta
        whole = torch.ones(len(gap), dtype=torch.bool)
        logged = {"chosen_reward": size[::2], "rejected_reward": size[1::2], "reward_margin": size[::2] - size[1::2]}
        logged["reward_accuracy"] = (size[::2] > size[1::2]).float()
        stats_tracker.average(mask=whole, **{f"{name}/avg": x for name, x in logged.items()})
        loss = (gap - 0.5 / beta) ** 2 if loss_type == "ipo" else -torch.nn.functional.logsigmoid(beta * gap)
        return loss.mean()
"""


def _bound(loads: Loads, shift: int = 1) -> tuple[Target, dict[str, Boundary]]:
    tree = {
        "areal/trainer/dpo/dpo_engine.py": LOSS.replace("SHIFT", str(shift)),
        "areal/utils/stats_tracker.py": TRACKER,
    }
    target = loads(FRAMEWORK, {"areal/__init__.py": "", **tree})
    return target, by_setting(boundaries(target))


def test_by_hand(loads: Loads) -> None:
    """Log-ratios of 1.5 and 2 nats, times 0.5; the token between is not trained."""
    target, bound = _bound(loads)
    batch = batch_of(
        torch.tensor([[True, False, True], [True, False, False]]),
        logprob=torch.tensor([[-1.0, -7.0, -1.0], [-1.0, 0.0, 0.0]]),
        ref_logprob=torch.tensor([[-2.0, -1.0, -1.5], [-3.0, 0.0, 0.0]]),
        length=torch.tensor([3, 1]),
        prompt_length=torch.tensor([1, 2]),
    )
    outputs = outputs_of(target, bound["sigmoid"], "sigmoid", batch)
    assert outputs["loss"].item() == pytest.approx(log(1 + exp(0.25)))
    assert outputs["chosen_reward/avg"].item() == pytest.approx(0.75)
    assert outputs["reward_margin/avg"].item() == pytest.approx(-0.25)
    assert outputs["reward_accuracy/avg"].item() == 0


@pytest.mark.parametrize("setting", ["sigmoid", "ipo"])
@pytest.mark.parametrize(("shift", "found"), [(1, False), (0, True)])
def test_mask_that_is_not_shifted_with_the_log_probs(loads: Loads, setting: str, shift: int, found: bool) -> None:
    target, bound = _bound(loads, shift)
    check_verdict(REF001, bound[setting], setting, target, found=found)


@pytest.mark.parametrize("setting", ["sigmoid", "ipo"])
def test_round_trip(loads: Loads, setting: str) -> None:
    target, bound = _bound(loads)
    check_round_trip(target, bound[setting])
