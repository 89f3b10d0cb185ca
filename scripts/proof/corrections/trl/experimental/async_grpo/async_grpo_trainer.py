# Corrections of trl/experimental/async_grpo/async_grpo_trainer.py (1.16.0): a method of which a few expressions are replaced.
# - Logged means of micro-batches are pooled by their number of tokens.

from replaced import replaced

from trl.trainer.utils import CountedMean, with_pooled_means

_MEANS = [
    f"(global_{name}_sum / global_count).item()"
    for name in ("ratio", "kl", "entropy", "low_clip", "high_clip", "region_clip")
]

AsyncGRPOTrainer.compute_loss = with_pooled_means(
    replaced(AsyncGRPOTrainer, "compute_loss", {mean: f"CountedMean({mean}, global_count.item())" for mean in _MEANS})
)
