# Corrections of trl/experimental/cpo/cpo_trainer.py (1.16.0).
# - Logged logits are means over the positions that predict tokens of the responses.

from replaced import replaced

_SCORED = "concatenated_batch['concatenated_labels'][:, 1:] != -100"

CPOTrainer.concatenated_forward = replaced(
    CPOTrainer,
    "concatenated_forward",
    {
        "chosen_logits = all_logits[:len_chosen]": "chosen_logits = all_logits[:len_chosen, :-1]"
        f"[({_SCORED})[:len_chosen]]",
        "rejected_logits = all_logits[len_chosen:]": "rejected_logits = all_logits[len_chosen:, :-1]"
        f"[({_SCORED})[len_chosen:]]",
    },
)
