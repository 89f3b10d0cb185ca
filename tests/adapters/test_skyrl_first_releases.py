"""SkyRL's first releases, in words of our own: the update of its worker, switches of its KL, rewards under a key."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.skyrl_worker_specimen import CONFIG, FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK, kl, worker
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

WORKER = """
    import torch
    from tqdm import tqdm
    from skyrl.backends.skyrl_train.utils.ppo_utils import compute_approx_kl

    def mean(x, mask):
        return torch.where(mask > 0, x, 0.0).sum(1) / mask.sum(1).clamp(min=1)

    class PolicyLoss(torch.nn.Module):
        def __init__(self, low, high, ceiling, loss_type, loss_reduction):
            super().__init__()
            self.low, self.high, self.reduction = low, high, loss_reduction

        def forward(self, log_probs, old_log_probs, advantages, loss_mask):
            ratio = (log_probs - old_log_probs).exp()
            near = ratio.clamp(1 - self.low, 1 + self.high)
            loss = -torch.minimum(ratio * advantages, near * advantages)
            if self.reduction == "sequence_mean":
                return mean(loss, loss_mask).mean()
            return torch.where(loss_mask > 0, loss, 0.0).sum() / loss_mask.sum().clamp(min=1)

    class PolicyWorkerBase:
        def training_step(self, own, number, parts):
            width, mask = own["loss_mask"].shape[1], own["loss_mask"]
            log_probs, output = self.model(own["sequences"].to(torch.cuda.current_device()), width)
            loss = self.actor_loss_fn(log_probs, own["action_log_probs"], own["advantages"], mask)
            if self.cfg.trainer.algorithm.use_kl_loss:
                gap = own["base_action_log_probs"] - log_probs
                kl = (gap.exp() - 1 - gap).detach() if DETACHED else gap.exp() - 1 - gap
                loss = loss + mean(kl, mask).mean() * self.cfg.trainer.algorithm.kl_loss_coef
            self.strategy.backward(loss / parts, self.model, self.optimizer)
            if number == parts:
                self.strategy.optimizer_step(self.optimizer, self.model, self.scheduler, name="actor")
            entropy = output["entropy"][:, -width - 1 : -1]
            counted = mask if MASKED else torch.ones_like(mask)
            return {"policy_entropy": ((entropy * counted).sum() / counted.sum().clamp(min=1)).item()}

        def ppo_train(self, data):
            assert data.metadata["global_step"] == 0
            size, logged = self.cfg.trainer.micro_train_batch_size_per_gpu, []
            for _ in range(self.cfg.trainer.update_epochs_per_batch):
                bar = tqdm(data.chunk(size), disable=not self.strategy.is_rank_0())
                for number, own in enumerate(bar):
                    logged.append(self.training_step(own, number + 1, PARTS))
                    bar.set_postfix(logged[-1])
            torch.distributed.barrier()
            output = type(data)()
            output.metadata = {"train_status": {k: sum(x[k] for x in logged) / len(logged) for k in logged[0]}}
            return output
"""

LOSSES = """
    import torch

    class FixedKLController:
        def __init__(self, kl_coef):
            self.value = kl_coef

    def compute_approx_kl(log_probs, log_probs_base, loss_mask=None, use_kl_estimator_k3=False, use_abs_kl=False):
        kl = log_probs - log_probs_base
        if use_kl_estimator_k3:
            kl = (-kl).exp() - 1 + kl
        if use_abs_kl:
            kl = ABS
        return kl * loss_mask
"""

TRAINER = """
    from skyrl.backends.skyrl_train.utils.ppo_utils import compute_approx_kl

    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data):
            return data["custom_rewards"]

        def apply_reward_kl_penalty(self, data):
            own, mask = self.cfg.trainer.algorithm, data["loss_mask"]
            options = {"use_kl_estimator_k3": own.use_kl_estimator_k3, "use_abs_kl": own.use_abs_kl}
            kl = compute_approx_kl(data["action_log_probs"], data["base_action_log_probs"], loss_mask=mask, **options)
            data["custom_rewards"] = data["custom_rewards"] SIGN kl * own.kl_loss_coef
            data.metadata["metrics"] = {"avg_kl": (kl.sum(1) / mask.sum(1).clamp(min=1)).mean().item()}
            return data
"""

OPTIONS = """ppo_loss_type="regular", clip_ratio_c=3.0, use_kl_estimator_k3=True, use_abs_kl=False"""

SOUND = {
    "DETACHED": "False",
    "MASKED": "True",
    "PARTS": "self.policy_mini_batch_size_per_gpu // size",
    "ABS": "kl.abs()",
    "SIGN": "-",
}


def _bound(loads: Loads, broken: dict[str, str]) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    worker_file, losses, trainer = WORKER, LOSSES, TRAINER
    for name, text in {**SOUND, **broken}.items():
        worker_file, losses, trainer = (x.replace(name, text) for x in (worker_file, losses, trainer))
    own = {
        "skyrl/backends/skyrl_train/workers/worker.py": worker_file,
        "skyrl/backends/skyrl_train/utils/ppo_utils.py": losses,
        "skyrl/train/trainer.py": trainer,
        "skyrl/train/config.py": CONFIG.replace('policy_loss_type="regular"', OPTIONS),
    }
    target = loads(FRAMEWORK, {**FILES, **own})
    made = [one for module in (worker, kl) for one in module.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.path.rpartition(".")[2], next(iter(one.settings))): one for one in made}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads, {})
    settings = [setting for _, setting in boundaries]
    reductions = ("token_mean", "sequence_mean")
    updates = [f"{kind}, {reduction}" for kind in ("alone", "with KL") for reduction in reductions]
    assert settings == [*updates, "metrics", "k1", "k3", "abs", "k1", "k3"]
    check_calls(target, boundaries.values())


CASES: list[tuple[Law, str, str, dict[str, str]]] = [
    (SPL001, "ppo_train", "alone, sequence_mean", {"PARTS": "1"}),
    (REF001, "ppo_train", "with KL, sequence_mean", {"DETACHED": "True"}),
    (MET001, "ppo_train", "metrics", {"MASKED": "False"}),
    (REF001, "compute_approx_kl", "abs", {"ABS": "kl"}),
    (REF001, "apply_reward_kl_penalty", "k3", {"SIGN": "+"}),
]


@pytest.mark.parametrize(("law", "name", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, name: str, setting: str, broken: dict[str, str], found: bool
) -> None:
    """Micro-batches that are not averaged, a KL without gradient, a metric over padding, an estimator, a sign."""
    target, boundaries = _bound(loads, broken if found else {})
    check_verdict(law, boundaries[name, setting], setting, target, found=found)
