# Corrections of skyrl/train/fully_async_trainer.py (0.3.0): a method of which a few expressions are replaced.
# - Metrics of an evaluation are logged at its own step.

from replaced import replaced

FullyAsyncRayPPOTrainer.train = replaced(
    FullyAsyncRayPPOTrainer,
    "train",
    {
        "self.all_metrics.update(eval_metrics)": (
            "self.tracker.log(eval_metrics, step=self.global_step, commit=False)"
        )
    },
)
