"""The distance of a function's result to its claimed formula, and the batches on which it is measured."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.formula_fit import NEAR, distance_to_reading, probes_of, unclipped_probes
from rl_sentinel.adapters.kit.layout_trial import outputs_on
from rl_sentinel.adapters.live_target import live_target
from rl_sentinel.adapters.user_function import Statement, describe
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import claims


def ppo(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    kept = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(kept * mask).sum() / mask.sum()


def group_mean(rewards: Tensor, group: Tensor) -> Tensor:
    same = (group[:, None] == group[None]).float()
    return rewards - same @ rewards / same.sum(1)


TARGET = live_target(ppo)
(FOUND,) = describe(
    TARGET,
    TARGET.path,
    Statement(stage="policy-loss", claims=claims("stated", algorithm="ppo", aggregation="token-mean")),
)
assert isinstance(FOUND, Boundary)
LOSS = FOUND


def test_probes_have_ratios_on_both_sides_of_usual_ranges_with_advantages_of_both_signs() -> None:
    probes = probes_of(LOSS)
    for sign in (1, -1):
        ratios = torch.cat([(x.logprob - x.old_logprob)[x.mask & (sign * x.advantage > 0)] for x in probes])
        for bound in (0.1, 0.2, 0.28):
            assert bool((ratios.exp() > 1 + bound).any() and (ratios.exp() < 1 - bound).any())


def test_probes_without_clipping_are_within_all_usual_ranges() -> None:
    for probe in unclipped_probes(LOSS):
        assert float((probe.logprob - probe.old_logprob).abs().max()) < 0.05


def test_a_function_that_reads_no_old_policy_has_one_probe() -> None:
    assert len(probes_of(replace(LOSS, reads=LOSS.reads - {"old_logprob"}))) == 1


@pytest.mark.parametrize(("low", "high", "near"), [(0.2, 0.2, True), (0.2, 0.21, False), (0.1, 0.2, False)])
def test_the_distance_tells_clip_ranges(low: float, high: float, near: bool) -> None:
    settings = {"clip_low": low, "clip_high": high}
    worst = max(
        distance_to_reading(LOSS, "loss", outputs_on(TARGET, LOSS, probe)["loss"], probe, settings)
        for probe in probes_of(LOSS)
    )
    assert (worst <= NEAR) is near


def test_a_result_that_cannot_be_compared_is_infinitely_far() -> None:
    (probe, *_), settings = probes_of(LOSS), {"clip_low": 0.2, "clip_high": 0.2}
    for value in (torch.tensor(math.nan), torch.zeros(2)):
        assert distance_to_reading(LOSS, "loss", value, probe, settings) == math.inf


def test_only_positions_of_the_formula_count() -> None:
    """An advantage at a token that does not train may have any value."""
    target = live_target(group_mean)
    (boundary,) = describe(
        target, target.path, Statement(stage="advantage", claims=claims("stated", algorithm="grpo", standardized=False))
    )
    assert isinstance(boundary, Boundary)
    (probe,) = probes_of(boundary)
    value = outputs_on(target, boundary, probe)["advantage"]
    settings = boundary.settings["default"]
    assert distance_to_reading(boundary, "advantage", value, probe, settings) <= NEAR
    assert distance_to_reading(boundary, "advantage", value + 0.01 * ~probe.mask, probe, settings) <= NEAR
    assert distance_to_reading(boundary, "advantage", value + 0.01 * probe.mask, probe, settings) > NEAR
