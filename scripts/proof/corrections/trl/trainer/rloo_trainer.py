# Corrections of trl/trainer/rloo_trainer.py (1.16.0): methods of which a few expressions are replaced.
# - A response without a trained token adds 0 to the loss.
# - A deviation that is no more than the rounding of the rewards is 0 in the log.
# - The reference of a model that is passed as an object has the weights of this model.

from replaced import replaced

from trl.trainer.utils import with_copied_reference

RLOOTrainer._compute_loss = replaced(
    RLOOTrainer,
    "_compute_loss",
    {"loss = per_sequence_loss.mean()": "loss = (per_sequence_loss * completion_mask.bool().any(dim=1)).mean()"},
)
RLOOTrainer._generate_and_score_completions = replaced(
    RLOOTrainer,
    "_generate_and_score_completions",
    {
        "torch.isclose(std_rewards, torch.zeros_like(std_rewards))": "(std_rewards <= 1e-6 * rewards.abs().max()"
        ".clamp(min=1.0))"
    },
)
RLOOTrainer.__init__ = with_copied_reference(RLOOTrainer.__init__)
