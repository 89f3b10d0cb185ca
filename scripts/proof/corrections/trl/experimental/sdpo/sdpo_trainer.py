# Corrections of trl/experimental/sdpo/sdpo_trainer.py (1.16.0): methods of which a few expressions are replaced.
# - A deviation that is no more than the rounding of the rewards is 0, and its advantages too.
# - Advantages that are not scaled are not divided.
# - dapo divides by the tokens of all micro-batches, and then not by the number of these.

from replaced import replaced

SDPOTrainer._prepare_training_batch = replaced(
    SDPOTrainer,
    "_prepare_training_batch",
    {
        "(rewards - mean_grouped_rewards) / (std_rewards + 1e-4)": "(rewards - mean_grouped_rewards)"
        ' / (1.0 if self.scale_rewards == "none" else std_rewards + 1e-4)'
        " * ~(std_rewards <= 1e-6 * rewards.abs().max().clamp(min=1.0))",
        "return batch": 'batch["num_items_in_batch"] = self.accelerator.gather(batch["completion_mask"].sum()).sum()\n'
        "    return batch",
    },
)

_LOCAL = "(per_token_loss * completion_mask).sum() / completion_mask.sum().clamp(min=1.0)"
_PARTS = "(self.args.steps_per_generation if self.model.training else 1)"
_GLOBAL = (
    'inputs["num_items_in_batch"].clamp(min=1.0)'
    f" / self.accelerator.num_processes / {_PARTS}"  # compute_loss divides by the number of micro-batches of a step
)
_DAPO = 'elif self.loss_type == "dapo":\n        loss = '

SDPOTrainer._compute_policy_loss = replaced(
    SDPOTrainer,
    "_compute_policy_loss",
    {f"{_DAPO}{_LOCAL}": f"{_DAPO}(per_token_loss * completion_mask).sum() / ({_GLOBAL})"},
)
