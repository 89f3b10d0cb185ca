# Corrections of trl/experimental/async_distillation/async_distillation_trainer.py (1.16.0): a method of which a few expressions are replaced.
# - Logged means of micro-batches are pooled by their number of tokens.

from replaced import replaced

from trl.trainer.utils import CountedMean, with_pooled_means

_COUNTS = {
    f"({total}_sum / {count}).item()": count
    for count, totals in {
        "global_count": ("global_jsd", "global_entropy", "global_teacher_entropy"),
        "t_count": ("t_jsd", "t_teacher_entropy"),
    }.items()
    for total in totals
}

AsyncDistillationTrainer._compute_loss = with_pooled_means(
    replaced(
        AsyncDistillationTrainer,
        "_compute_loss",
        {mean: f"CountedMean({mean}, {count}.item())" for mean, count in _COUNTS.items()},
    )
)
