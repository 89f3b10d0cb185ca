"""The data of a rollout in slime's specimen, and its filter of prompts."""

from collections.abc import Callable

import pytest
import torch

from adapters.checks import bound, judged_at
from adapters.slime_specimen import files
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import EXCLUDED, batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.core.layout import Layout
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_log_probs_of_the_sampler_keep_their_numbers(loads: Loads, fixed: bool, found: bool) -> None:  # noqa: FBT001
    """Half precision on the way to the trainer loses digits."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["process_rollout_data", "default"]
    assert (judged_at(PLC004, boundary, "default", target).found is not None) is found


def test_samples_reach_their_rank(loads: Loads) -> None:
    """Whatever rank has them, rows come back in the order of the rollout; a removed sample trains nothing."""
    target = loads(FRAMEWORK, files(fixed=True))
    boundary = bound(FRAMEWORK, target)["process_rollout_data", "default"]
    columns = {"token": torch.arange(8).reshape(4, 2), "reward": torch.tensor([1.0, 2.0, 3.0, 4.0])}
    excluded = torch.tensor([0, 0, EXCLUDED["rejected"], 0])
    batch = batch_of(torch.tensor([[1, 1], [1, 0], [0, 0], [1, 1]]).bool(), excluded=excluded, **columns)
    for ranks in (1, 2):
        run = execute(target, boundary, inputs_of(boundary, Case(batch, layout=Layout(ranks=ranks))))
        for name in ("token", "mask", "reward"):
            assert torch.equal(run.values[name], getattr(batch, name)), (ranks, name)


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_prompts_without_a_difference(loads: Loads, fixed: bool, found: bool) -> None:  # noqa: FBT001 - parametrised
    """A deviation that is a rounding alone keeps a prompt of equal rewards."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["check_reward_nonzero_std", "default"]
    assert (judged_at(REF001, boundary, "default", target).found is not None) is found
