"""slime's adapter, on a specimen of its call shapes in words of our own."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
import torch

from adapters.checks import answering, bound, judged_at
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.kit.observation import bind, observe
from rl_sentinel.adapters.loading import used
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.advantages import DEFAULTS
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Unbound
from rl_sentinel.laws.quantity_answers_to_wrong_input import LAW as MET004
from rl_sentinel.laws.sequence_decision_splits_row import LAW as SCP001

Loads = Callable[..., Target]

PPO_UTILS = """
    import torch

    def compute_approx_kl(log_probs, log_probs_base, kl_loss_type):
        d = log_probs - log_probs_base
        return {"k1": d, "k2": d * d / 2}.get(kl_loss_type, (-d).exp() - 1 + d)

    def compute_opsm_mask(args, full_log_probs, full_old_log_probs, advantages, loss_masks):
        kept = []
        for new, old, advantage, mask in zip(full_log_probs, full_old_log_probs, advantages, loss_masks):
            far = ((old - new) * mask).sum() / mask.sum().clamp(min=1) > args.opsm_delta
            low = (advantage * mask).sum() < 0 if FIXED else advantage < 0
            kept.append(1 - (low & far).float() * torch.ones_like(advantage))
        return torch.cat(kept), torch.tensor(0.0)

    def compute_gspo_kl(full_log_probs, full_old_log_probs, local_log_probs, loss_masks):
        rows = zip(full_log_probs, full_old_log_probs, loss_masks)
        means = [((old - new) * mask).sum() / mask.sum().clamp(min=1) for new, old, mask in rows]
        return torch.cat([m.expand_as(x) for m, x in zip(means, local_log_probs)])

    @torch.compile(dynamic=True)
    def compute_policy_loss(ppo_kl, advantages, eps_clip, eps_clip_high, eps_clip_c=None):
        return -(-ppo_kl).exp() * advantages, torch.tensor(0.0)

    def compute_cispo_loss(ppo_kl, log_probs, advantages, eps_clip, eps_clip_high):
        return -(-ppo_kl).exp().detach() * advantages * log_probs, torch.tensor(0.0)

    def vanilla_gae(rewards, values, gamma, lambd):
        later = rewards.flip(1).cumsum(1).flip(1)
        return later - values, later

    chunked_gae = vanilla_gae
"""

LOSS = """
    import torch
    import torch.distributed as dist
    from megatron.core import mpu
    from megatron.core.packed_seq_params import PackedSeqParams
    from slime.utils.ppo_utils import compute_approx_kl

    def compute_advantages_and_returns(args, rollout_data):
        if not mpu.is_pipeline_last_stage():
            return
        if args.kl_coef:
            pairs = zip(rollout_data["log_probs"], rollout_data["ref_log_probs"])
            kl = [compute_approx_kl(a, b, args.kl_loss_type) for a, b in pairs]
        else:
            kl = [torch.zeros_like(a) for a in rollout_data["log_probs"]]
        values = rollout_data.get("values") or kl
        rollout_data["kl"] = kl
        advantages = []
        for reward, row, value in zip(rollout_data["rewards"], kl, values):
            shaped = row * -args.kl_coef if FIXED else row.mul_(-args.kl_coef)
            if mpu.get_context_parallel_rank() == 0:
                shaped[-1] += reward
            if args.advantage_estimator == "ppo":
                advantages.append(shaped.flip(0).cumsum(0).flip(0) - args.gamma * value)
            else:
                advantages.append(torch.ones_like(row) * reward)
        if args.normalize_advantages:
            total = torch.cat(advantages).sum()
            dist.all_reduce(total, group=mpu.get_data_parallel_group(with_context_parallel=True))
            advantages = [a - total / sum(map(len, advantages)) for a in advantages]
        rollout_data["advantages"] = rollout_data["returns"] = advantages

    def vanilla_tis_function(args, *, pg_loss, train_log_probs, rollout_log_probs, loss_masks, **more):
        weight = (torch.cat(train_log_probs) - torch.cat(rollout_log_probs)).exp()
        return pg_loss * weight.clamp(args.tis_clip_low, args.tis_clip), loss_masks, {}

    icepop_function = vanilla_tis_function
"""

REDUCER = """
    def get_sum_of_sample_mean(
        total_lengths, response_lengths, loss_masks, sample_denoms=None, calculate_per_token_loss=False
    ):
        def reduce(x):
            rows = zip(x.split(response_lengths), loss_masks)
            return sum((a * m).sum() / (1 if calculate_per_token_loss else m.sum().clamp(min=1)) for a, m in rows)
        return reduce
"""

ROLLOUT = """
    import ray
    from sglang.srt.constants import KIND
    import torch

    @ray.remote
    class RolloutManager:
        def _post_process_rewards(self, samples):
            rewards = torch.tensor([s.reward for s in samples])
            if len(rewards) == self.args.n_samples_per_prompt * self.args.rollout_batch_size:
                rewards = rewards.reshape(-1, self.args.n_samples_per_prompt)
                rewards = (rewards - rewards.mean(1, keepdim=True)).flatten()
            return None, rewards.tolist()
"""

SAMPLE = """
    from dataclasses import dataclass

    @dataclass
    class Sample:
        group_index: int
        index: int
        response_length: int
        reward: float
        loss_mask: list
        remove_sample: bool
"""


def _files(*, fixed: bool) -> dict[str, str]:
    backend = "slime/backends/megatron_utils"
    return {
        f"{backend}/__init__.py": "raise RuntimeError('an engine was started')",
        f"{backend}/loss.py": LOSS.replace("FIXED", str(fixed)),
        f"{backend}/cp_utils.py": REDUCER,
        "slime/ray/rollout.py": ROLLOUT,
        "slime/utils/types.py": SAMPLE,
        "slime/utils/ppo_utils.py": PPO_UTILS.replace("FIXED", str(fixed)),
    }


def test_all_boundaries_answer(loads: Loads) -> None:
    target = loads(FRAMEWORK, _files(fixed=True))
    assert answering(bound(FRAMEWORK, target), target) == []
    assert used["megatron.core.mpu"] == "double"
    assert used["sglang"] == "stand-in"


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
@pytest.mark.parametrize("setting", ["ppo", "ppo, coefficient 0"])
def test_kl_that_is_a_reward(loads: Loads, setting: str, fixed: bool, found: bool) -> None:  # noqa: FBT001
    """A shaped reward written where the KL was answers to the reward, also at coefficient 0."""
    target = loads(FRAMEWORK, _files(fixed=fixed))
    boundaries = bound(FRAMEWORK, target)
    judgement = judged_at(MET004, boundaries["compute_advantages_and_returns", setting], setting, target)
    assert (judgement.found is not None) is found
    if judgement.found is not None:
        assert judgement.found.expectation.sentence().startswith("kl does not depend on reward, yet ")


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_sequence_decision(loads: Loads, fixed: bool, found: bool) -> None:  # noqa: FBT001 - parametrised
    target = loads(FRAMEWORK, _files(fixed=fixed))
    boundaries = bound(FRAMEWORK, target)
    judgement = judged_at(SCP001, boundaries["compute_opsm_mask", "default"], "default", target)
    assert (judgement.found is not None) is found


def test_missing_functions_are_unbound(loads: Loads) -> None:
    files = _files(fixed=True)
    source = files["slime/utils/ppo_utils.py"]
    files["slime/utils/ppo_utils.py"] = source.replace("compute_cispo_loss", "later").replace("vanilla_gae", "gae")
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, files)) if isinstance(b, Unbound)]
    assert [b.path for b in unbound] == ["slime.utils.ppo_utils.vanilla_gae"]


def test_round_trip(loads: Loads) -> None:
    target = loads(FRAMEWORK, _files(fixed=True))
    check_round_trips(target, bound(FRAMEWORK, target).values())


def test_observed_call(loads: Loads) -> None:
    target = loads(FRAMEWORK, _files(fixed=True))
    boundary = bound(FRAMEWORK, target)["compute_advantages_and_returns", "ppo"]
    function = target.find("slime.backends.megatron_utils.loss.compute_advantages_and_returns")
    args = Namespace(**{**DEFAULTS, "advantage_estimator": "ppo", "kl_coef": 0.05})
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
