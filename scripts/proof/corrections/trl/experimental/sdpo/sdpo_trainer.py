# Corrections of trl/experimental/sdpo/sdpo_trainer.py (1.16.0): a method of which an expression is replaced.
# - A deviation that is no more than the rounding of the rewards is 0, and its advantages too.
# - Advantages that are not scaled are not divided.

from replaced import replaced

SDPOTrainer._prepare_training_batch = replaced(
    SDPOTrainer,
    "_prepare_training_batch",
    {
        "(rewards - mean_grouped_rewards) / (std_rewards + 1e-4)": "(rewards - mean_grouped_rewards)"
        ' / (1.0 if self.scale_rewards == "none" else std_rewards + 1e-4)'
        " * ~(std_rewards <= 1e-6 * rewards.abs().max().clamp(min=1.0))"
    },
)
