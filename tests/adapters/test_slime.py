"""slime's adapter, on a specimen of its call shapes in words of our own."""

from argparse import Namespace
from typing import Any

import pytest
import torch

from adapters.checks import Loads, answering, bound, check_verdict, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.slime_specimen import files
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.kit.observation import bind, observe
from rl_sentinel.adapters.loading import used
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.advantages import DEFAULTS
from rl_sentinel.core.boundary import Unbound
from rl_sentinel.laws.quantity_answers_to_wrong_input import LAW as MET004
from rl_sentinel.laws.sequence_decision_splits_row import LAW as SCP001


def test_all_boundaries_answer(loads: Loads) -> None:
    target = loads(FRAMEWORK, files(fixed=True))
    assert answering(bound(FRAMEWORK, target), target) == []
    assert used["megatron.core.mpu"] == "fake"
    assert used["sglang"] == "stand-in"


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
@pytest.mark.parametrize("setting", ["ppo", "ppo, coefficient 0"])
def test_kl_that_is_a_reward(loads: Loads, setting: str, fixed: bool, found: bool) -> None:
    """A shaped reward written where the KL was answers to the reward, also at coefficient 0."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundaries = bound(FRAMEWORK, target)
    judgement = judged_at(MET004, boundaries["compute_advantages_and_returns", setting], setting, target)
    assert (judgement.found is not None) is found
    if judgement.found is not None:
        assert judgement.found.expectation.sentence().startswith("kl does not depend on reward, yet ")


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_sequence_decision(loads: Loads, fixed: bool, found: bool) -> None:
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundaries = bound(FRAMEWORK, target)
    check_verdict(SCP001, boundaries["compute_opsm_mask", "default"], "default", target, found=found)


def test_missing_functions_are_unbound(loads: Loads) -> None:
    tree = files(fixed=True)
    source = tree["slime/utils/ppo_utils.py"]
    tree["slime/utils/ppo_utils.py"] = source.replace("compute_cispo_loss", "later").replace("vanilla_gae", "gae")
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree)) if isinstance(b, Unbound)]
    assert [b.path for b in unbound] == ["slime.utils.ppo_utils.vanilla_gae"]


def test_reasons_of_unbound_functions_name_what_the_release_lacks(loads: Loads) -> None:
    tree = files(fixed=True)
    loss = "slime/backends/megatron_utils/loss.py"
    later = tree[loss].replace("compute_advantages_and_returns", "later").replace("logits.squeeze(-1)[0]", "logits[0]")
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree | {loss: later})) if isinstance(b, Unbound)]
    reasons = {b.path.rpartition(".")[2]: b.reason for b in unbound}
    module = "slime.backends.megatron_utils.loss"
    assert reasons["log_rollout_data"] == f"{module}.compute_advantages_and_returns is absent"
    assert reasons["get_values"] == (
        "get_values does not squeeze its result: the values of a response are [T, 1], expected [T]"
    )


@pytest.mark.slow
def test_round_trip(loads: Loads) -> None:
    target = loads(FRAMEWORK, files(fixed=True))
    check_round_trips(target, bound(FRAMEWORK, target).values())


def test_observed_call(loads: Loads) -> None:
    target = loads(FRAMEWORK, files(fixed=True))
    boundary = bound(FRAMEWORK, target)["compute_advantages_and_returns", "ppo"]
    function = target.find("slime.backends.megatron_utils.loss.compute_advantages_and_returns")
    args = Namespace(**{**DEFAULTS, "advantage_estimator": "ppo", "kl_coef": 0.05, "kl_loss_type": "k1"})
    live: dict[str, Any] = {
        "log_probs": [torch.tensor([-1.0, -0.5]), torch.tensor([-2.0])],
        "ref_log_probs": [torch.tensor([-1.5, -0.5]), torch.tensor([-2.0])],
        "values": [torch.tensor([0.5, 0.25]), torch.tensor([1.0])],
        "rewards": [1.0, -1.0],
        "loss_masks": [torch.tensor([1, 1], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)],
        "total_lengths": [3, 2],
        "response_lengths": [2, 1],
    }
    observed = observe(boundary.steps[0], bind(function, (args, live), {}))
    function(args, live)
    batch = observed.case("ppo").batch
    assert batch.old_logprob.tolist() == [[-1.0, -0.5], [-2.0, 0.0]]
    assert batch.reward.tolist() == [1.0, -1.0]
    assert batch.mask.tolist() == [[True, True], [True, False]]
    assert batch.length.tolist() == [2, 1]
    assert observed.knobs["kl_coef"] == 0.05
    assert "rollout_logprob" not in observed.columns
    assert observed.absent(boundary) == frozenset()
    again = execute(target, boundary, inputs_of(boundary, observed.case("ppo")))
    expected = torch.nn.utils.rnn.pad_sequence(live["advantages"], batch_first=True)
    assert torch.equal(again.values["advantage"], expected)
