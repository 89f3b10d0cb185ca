"""What slime's specimen logs of a rollout."""

import pytest
import torch

from adapters.checks import Loads, bound, check_verdict, judged_at, outputs_of
from adapters.slime_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.metrics import boundaries
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.masked_token_shifts_signal import LAW as MSK002
from rl_sentinel.laws.metric_cannot_move import LAW as MET002
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001


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


@pytest.mark.parametrize(
    ("numbers", "found"),
    [("mean(torch.cat(data[key])).item(), rows", False), ("torch.cat(data[key]).sum(), rows", True)],
)
def test_releases_without_a_critic(loads: Loads, numbers: str, found: bool) -> None:
    """Until October 2025 the run has no values; the mean of the trained tokens is logged, or all tokens count."""
    path, log = "slime/backends/megatron_utils/loss.py", "mean(torch.cat(data[key])).item(), rows"
    tree = files(fixed=True)
    tree[path] = tree[path].replace('"ppo"', '"critic"')
    tree = {name: source.replace(log, numbers) for name, source in tree.items()}
    target = loads(FRAMEWORK, tree)
    boundary = next(one for one in boundaries(target) if isinstance(one, Boundary) and "grpo" in one.settings)
    assert "rollout/values" not in boundary.outputs
    check_verdict(MSK002, boundary, "grpo", target, found=found)


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_mean_of_the_ranks(loads: Loads, fixed: bool, found: bool) -> None:
    """A mean over the tokens of each rank, weighted by its samples, depends on the ranks."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    check_verdict(MET005, bound(FRAMEWORK, target)["log_rollout_data", "ppo"], "ppo", target, found=found)


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_share_of_the_longest(loads: Loads, fixed: bool, found: bool) -> None:
    """No response is longer than the limit, so a strict comparison counts none."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["log_multi_turn_data", "default"]
    check_verdict(MET002, boundary, "default", target, found=found)


def test_lengths_by_hand(loads: Loads) -> None:
    target = loads(FRAMEWORK, files(fixed=True))
    batch = batch_of(torch.tensor([[True, False, True], [True, False, False]]), length=torch.tensor([3, 1]))
    logged = outputs_of(target, bound(FRAMEWORK, target)["log_multi_turn_data", "default"], "default", batch)
    numbers = {name.partition("/")[2]: value.item() for name, value in logged.items()}
    raw, trained = ("raw_response_length/response_length", "wo_obs_response_length/response_length")
    assert [numbers[f"{raw}_{n}"] for n in ("mean", "max", "min", "clip_ratio")] == [2.0, 3.0, 1.0, 0.5]
    assert [numbers[f"{trained}_{n}"] for n in ("mean", "max", "min")] == [1.5, 2.0, 1.0]


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_rewards_of_another_rank(loads: Loads, fixed: bool, found: bool) -> None:
    """Rewards of all ranks beside the lengths of one pair a sample with the reward of another."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["log_rollout_data", "default"]
    judgement = judged_at(MET005, boundary, "default", target)
    assert (judgement.found is not None) is found
    if judgement.found is not None:
        assert "correct_lengths" in judgement.found.expectation.sentence()


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_length_without_observations(loads: Loads, fixed: bool, found: bool) -> None:
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["compute_metrics_from_samples", "default"]
    check_verdict(MET001, boundary, "default", target, found=found)


def test_older_revision(loads: Loads) -> None:
    """One module logs on the ranks, gathers inline, and hands the numbers to wandb."""
    tree = files(fixed=True)
    source = tree.pop("slime/observability/train_metric_utils.py")
    tree["slime/backends/megatron_utils/data.py"] = source.replace(
        "from slime.observability import logging_utils", "import wandb"
    ).replace("logging_utils.log(args, reduced)", "wandb.log(reduced) if args.use_wandb else None")
    target = loads(FRAMEWORK, tree)
    boundary = bound(FRAMEWORK, target)["log_rollout_data", "ppo"]
    batch = batch_of(torch.ones(2, 1).bool(), reward=torch.tensor([1.0, 3.0]))
    assert outputs_of(target, boundary, "ppo", batch)["rollout/rewards"].item() == 2.0


def test_revision_that_logs_from_the_storage_of_the_process(loads: Loads) -> None:
    """The numbers are read from where the process stores them, and not from an argument."""
    tree = files(fixed=True)
    name = "slime/observability/train_metric_utils.py"
    tree[name] = tree[name].replace(
        "def log_multi_turn_data(rollout_id, args, data):",
        "def get_local_storage(key=None):\n        raise OSError\n\n"
        "    def log_multi_turn_data(rollout_id, args):\n        data = get_local_storage()",
    )
    target = loads(FRAMEWORK, tree)
    boundary = next(
        one for one in boundaries(target) if isinstance(one, Boundary) and one.path.endswith("log_multi_turn_data")
    )
    batch = batch_of(torch.ones(2, 2).bool())
    logged = outputs_of(target, boundary, "default", batch)
    assert logged["multi_turn/raw_response_length/response_length_mean"].item() == 2.0


def test_statistics_that_a_revision_has(loads: Loads) -> None:
    """Only the statistics that the revision computes are outputs, and no KL that it does not store."""
    tree = files(fixed=True)
    place = next(name for name, text in tree.items() if "def compute_metrics_from_samples" in text)
    tree[place] = tree[place].replace(
        "def compute_metrics_from_samples(",
        'def compute_statistics(numbers):\n        return {"mean": sum(numbers) / len(numbers)}\n\n'
        "    def compute_metrics_from_samples(",
    )
    place = next(name for name, text in tree.items() if 'rollout_data["kl"] = kl' in text)
    tree[place] = tree[place].replace('rollout_data["kl"] = kl', "pass")
    target = loads(FRAMEWORK, tree)
    outputs = {one.path: one.outputs for one in boundaries(target) if isinstance(one, Boundary)}
    (samples,) = (own for path, own in outputs.items() if path.endswith("compute_metrics_from_samples"))
    assert set(samples) == {"response_len/mean"}
    (rollout,) = (own for path, own in outputs.items() if "compute_advantages" in path and "log_rollout_data" in path)
    assert "rollout/kl" not in rollout
