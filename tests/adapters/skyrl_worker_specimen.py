"""A specimen of what SkyRL's workers call, in words of our own, as modules of a source tree."""

from adapters.test_skyrl_rollout import PREPROCESS

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        algorithm = SimpleNamespace(policy_loss_type="regular", loss_reduction="token_mean", use_kl_loss=False)
        vars(algorithm).update(eps_clip_low=0.2, eps_clip_high=0.2, kl_loss_coef=0.001)
        trainer = SimpleNamespace(algorithm=algorithm, micro_train_batch_size_per_gpu=1)
        return SimpleNamespace(trainer=trainer)
"""

BATCH = """
    class TrainingInputBatch(dict):
        metadata = None

        @property
        def batch_size(self):
            return len(self["sequences"])

        def chunk(self, size):
            parts = []
            for start in range(0, self.batch_size, size):
                rows = slice(start, start + size)
                parts.append(TrainingInputBatch({k: v if v is None else v[rows] for k, v in self.items()}))
                parts[-1].metadata = self.metadata
            return parts
"""

LOSSES = """
    import torch

    class PolicyLossRegistry:
        @classmethod
        def list_available(cls):
            return ["regular"]

        @classmethod
        def get(cls, name):
            return regular

    def regular(log_probs, old_log_probs, advantages, loss_mask):
        ratio = torch.where(loss_mask > 0, log_probs - old_log_probs, 0.0).exp()
        near = ratio.clamp(0.8, 1.3)  # the numbers of the one setting with a formula
        return -torch.where(loss_mask > 0, torch.minimum(ratio * advantages, near * advantages), 0.0).sum()

    def apply_loss_reduction_to_advantages_minibatch(
        advantages, loss_mask, loss_reduction, micro_batch_size, max_seq_len
    ):
        if loss_reduction == "token_mean":
            return advantages / loss_mask.sum()
        return advantages / loss_mask.sum(1, keepdim=True).clamp(min=1) / len(loss_mask)
"""

TRAINER = """
    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data): return data
"""

#: Path -> source of the modules that every worker needs.
FILES = {
    "skyrl/backends/__init__.py": "raise RuntimeError('an engine was started')",
    "skyrl/backends/skyrl_train/training_batch.py": BATCH,
    "skyrl/backends/skyrl_train/utils/ppo_utils.py": LOSSES,
    "skyrl/train/config.py": CONFIG,
    "skyrl/train/dataset/preprocess.py": PREPROCESS,
    "skyrl/train/trainer.py": TRAINER,
}
