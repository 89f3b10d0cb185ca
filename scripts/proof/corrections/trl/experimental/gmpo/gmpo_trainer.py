# Corrections of trl/experimental/gmpo/gmpo_trainer.py (1.16.0): a method of which a few expressions are replaced.
# - Logged means take values for responses only where there is one value per response, not wherever one token is wide.
# - A response without a trained token adds 0 to the loss.
# - Logged means of micro-batches are pooled by their number of tokens.

from replaced import replaced

from trl.trainer.utils import CountedMean, with_pooled_means

_MEAN = "(totals[0] / totals[1].clamp(min=1.0)).item()"

GMPOTrainer._compute_loss = with_pooled_means(
    replaced(
        GMPOTrainer,
        "_compute_loss",
        {
            "x.shape[1] == 1": "x.shape[1] == 1 != mask.shape[1]",
            "loss = per_sequence_loss.mean()": "loss = (per_sequence_loss * mask.bool().any(dim=1)).mean()",
            _MEAN: f"CountedMean({_MEAN}, totals[1].item())",
        },
    )
)
