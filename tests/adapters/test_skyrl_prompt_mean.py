"""SkyRL's mean over prompts, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from adapters.skyrl_worker_specimen import FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.prompt_mean import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

LOSSES = """
    import torch

    class PolicyLossRegistry:
        @classmethod
        def list_available(cls):
            return ["regular"]

        @classmethod
        def get(cls, name):
            return regular

    def regular(log_probs, old_log_probs, advantages, config, loss_mask, rollout_logprobs):
        ratio = torch.where(loss_mask > 0, log_probs - old_log_probs, 0.0).exp()
        near = ratio.clamp(1 - config.eps_clip_low, 1 + config.eps_clip_high)
        return -torch.where(loss_mask > 0, torch.minimum(ratio * advantages, near * advantages), 0.0).sum(), {}
"""

PROMPTS = """
    def compute_prompt_boundaries(uids):
        starts = [row for row, uid in enumerate(uids) if row == 0 or uid != uids[row - 1]]
        return list(zip(starts, [*starts[1:], len(uids)]))
"""

TRAINER = """
    import torch

    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data): return data

        def _normalize_advantages(self, data, mini_batches, prompts):
            assert self.cfg.trainer.algorithm.loss_reduction == "prompt_mean"
            scaled = torch.zeros_like(data["advantages"])
            for start, end in mini_batches:
                own = [(first, last) for first, last in prompts if start <= first < end]
                for first, last in own:
                    tokens = data["loss_mask"][FIRST:LAST].sum().clamp(min=1)
                    scaled[first:last] = data["advantages"][first:last] / tokens / COUNT
            return {"advantages": scaled}
"""

SOUND = {"FIRST": "first", "LAST": "last", "COUNT": "len(own)"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(TRAINER, SOUND | broken)
    preprocess = "skyrl/train/dataset/preprocess.py"
    files = {
        **FILES,
        "skyrl/backends/skyrl_train/utils/ppo_utils.py": LOSSES,
        "skyrl/train/config.py": FILES["skyrl/train/config.py"].replace("use_kl_loss", "max_seq_len=None, use_kl_loss"),
        "skyrl/train/trainer.py": source,
        preprocess: FILES[preprocess] + PROMPTS,
    }
    target = loads(FRAMEWORK, files)
    return target, the_only(boundaries(target))


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


def test_release_without_this_mean(loads: Loads) -> None:
    assert list(boundaries(loads(FRAMEWORK, FILES))) == []


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"FIRST": "first - start", "LAST": "last - start"}, True),
        ({"COUNT": "len(prompts)"}, True),
        ({"LAST": "first + 1"}, True),
    ],
)
def test_formula(loads: Loads, broken: dict[str, str], found: bool) -> None:
    """Prompts by their place in the mini-batch, all prompts of the batch, and tokens of one response."""
    target, boundary = _bound(loads, **broken)
    check_verdict(REF001, boundary, "prompt_mean", target, found=found)
