# Corrections of trl/trainer/dpo_trainer.py (1.16.0).
# - A mean over tokens divides by the number of tokens that are scored, those of the mask after its shift.
# - The reference of a model that is passed as an object has the weights of this model.

from replaced import replaced

from trl.trainer.utils import with_copied_reference

DPOTrainer._compute_loss = replaced(
    DPOTrainer,
    "_compute_loss",
    {"rejected_mask = completion_mask.chunk(2, dim=0)": "rejected_mask = shift_completion_mask.chunk(2, dim=0)"},
)
DPOTrainer.__init__ = with_copied_reference(DPOTrainer.__init__)
