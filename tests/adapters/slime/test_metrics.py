"""What slime's specimen logs of a rollout."""

from collections.abc import Callable

import pytest
import torch

from adapters.checks import bound, judged_at, outputs_of
from adapters.slime_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005

Loads = Callable[..., Target]


def test_logged_by_hand(loads: Loads) -> None:
    target = loads(FRAMEWORK, files(fixed=True))
    boundary = bound(FRAMEWORK, target)["log_rollout_data", "ppo"]
    columns = {
        "reward": torch.tensor([1.0, 3.0]),
        "value": torch.tensor([[1.0, 3.0], [5.0, 9.0]]),
        "old_logprob": torch.tensor([[-1.0, -1.0], [-2.0, 0.0]]),
        "ref_logprob": torch.tensor([[-1.0, -2.0], [-4.0, 0.0]]),
    }
    batch = batch_of(torch.tensor([[True, True], [True, False]]), length=torch.tensor([2, 1]), **columns)
    logged = outputs_of(target, boundary, "ppo", batch)
    assert logged["rollout/rewards"].item() == 2.0
    assert logged["rollout/values"].item() == (2.0 + 5.0) / 2
    assert logged["rollout/kl"].item() == pytest.approx((0 + 1 + 2) / 3)
    assert logged["rollout/response_lengths"].item() == 1.5


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_mean_of_the_ranks(loads: Loads, fixed: bool, found: bool) -> None:  # noqa: FBT001 - parametrised
    """A mean over the tokens of each rank, weighted by its samples, depends on the ranks."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    judgement = judged_at(MET005, bound(FRAMEWORK, target)["log_rollout_data", "ppo"], "ppo", target)
    assert (judgement.found is not None) is found
