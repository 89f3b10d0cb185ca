"""SkyRL's logged numbers, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.test_skyrl_rollout import BATCH, CONFIG, PREPROCESS
from rl_sentinel.adapters.skyrl import FRAMEWORK, metrics
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001

UTILS = """
    def get_rollout_metrics(responses, rewards, env_metrics=None, env_classes=None, loss_masks=None):
        lengths = [len(one) for one in responses]
        zero = [n for n, reward in zip(lengths, rewards) if reward == 0]
        counts = compute_turn_token_counts(loss_masks)
        by_turn = {"generate/tokens_per_turn_mean": sum(counts) / len(counts)} if counts else {}
        return by_turn | {
            "generate/avg_num_tokens": sum(lengths) / DIVISOR,
            "generate/avg_tokens_zero_rewards": sum(zero) / max(1, len(zero)),
        }

    def compute_turn_token_counts(loss_masks):
        counts = []
        for mask in loss_masks:
            counts += [len(turn) for turn in "".join(map(str, mask)).split("0") if turn] if SPLIT else [sum(mask)]
        return counts
"""

WORKERS = """
    import torch

    NAME = "minibatch_rollout_logprobs_abs_diff"

    def compute_minibatch_rollout_logprob_diff_metrics(action_log_probs, rollout_logprobs, loss_mask):
        gap = (action_log_probs - rollout_logprobs).abs()
        own = torch.where(loss_mask > 0, gap, 0.0)
        least = own.min() if PADDED else torch.where(loss_mask > 0, gap, torch.inf).min()
        found = {"_mean": own.sum(), "_sq_mean": own.square().sum(), "_max": own.max(), "_min": least}
        found |= {"_count": loss_mask.sum()}
        return {NAME + what: value.item() for what, value in found.items()}

    def reduce_metrics(metrics):
        tokens = max(1.0, sum(metrics[NAME + "_count"]))
        sums = {k: sum(v) / (tokens if WEIGHTED else max(1.0, v[0])) for k, v in metrics.items()}
        return sums | {NAME + "_max": max(metrics[NAME + "_max"]), NAME + "_min": min(metrics[NAME + "_min"])}
"""

TRAINER = """
    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data): return data

        def postprocess_generator_output(self, generator_output, uids):
            rewards = generator_output["rewards"]
            solved = {uid for uid, reward in zip(uids, rewards) if reward > 0}
            count = self.cfg.generator.n_samples_per_prompt
            self.all_metrics[f"reward/avg_pass_at_{count}"] = len(solved) / len(set(uids))
            self.all_metrics["reward/avg_raw_reward"] = sum(rewards) / len(rewards)
            return generator_output, uids
"""


def _target(
    loads: Loads, divisor: str = "len(lengths)", padded: str = "False", weighted: str = "True", split: str = "True"
) -> Target:
    files = {
        "skyrl/backends/__init__.py": "raise RuntimeError('an engine was started')",
        "skyrl/backends/skyrl_train/training_batch.py": BATCH,
        "skyrl/backends/skyrl_train/workers/worker_utils.py": WORKERS.replace("PADDED", padded).replace(
            "WEIGHTED", weighted
        ),
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/dataset/preprocess.py": PREPROCESS,
        "skyrl/train/trainer.py": TRAINER,
        "skyrl/train/generators/utils.py": UTILS.replace("DIVISOR", divisor).replace("SPLIT", split),
    }
    return loads(FRAMEWORK, files)


def _bound(target: Target) -> dict[str, Boundary]:
    made = [one for one in metrics.boundaries(target) if isinstance(one, Boundary)]
    return {one.path.rpartition(".")[2]: one for one in made}


def test_all_boundaries_answer(loads: Loads) -> None:
    target = _target(loads)
    boundaries = {(name, "default"): boundary for name, boundary in _bound(target).items()}
    assert len(boundaries) == 4
    assert answering(boundaries, target) == []


@pytest.mark.slow
def test_round_trips(loads: Loads) -> None:
    target = _target(loads)
    check_round_trips(target, _bound(target).values())


CASES = [
    (MET001, "get_rollout_metrics", {"divisor": "(len(lengths) + 1)"}),
    (MET001, "compute_turn_token_counts", {"split": "False"}),
    (PAD001, "reduce_metrics", {"padded": "True"}),
    (MET005, "reduce_metrics", {"weighted": "False"}),
]


@pytest.mark.parametrize(("law", "name", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, name: str, broken: dict[str, str], found: bool) -> None:
    """A mean over one response too many, or over responses instead of turns, a minimum of padding, a mean by parts."""
    target = _target(loads, **(broken if found else {}))
    check_verdict(law, _bound(target)[name], "default", target, found=found)
