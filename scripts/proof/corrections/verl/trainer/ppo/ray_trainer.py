# Corrections of verl/trainer/ppo/ray_trainer.py (0.9.1): a method of which a few expressions are replaced.
# - A data loader is restored at the end of an epoch too, and the epoch that is over is left.

from replaced import replaced

_RESTORED = """if at_epoch_boundary:
            self.train_dataloader.load_state_dict(torch.load(dataloader_local_path, weights_only=False))
            for _ in self.train_dataloader:
                raise RuntimeError("the restored epoch is not over")
"""

RayPPOTrainer._load_checkpoint = replaced(
    RayPPOTrainer, "_load_checkpoint", {"if at_epoch_boundary:\n": _RESTORED}
)
