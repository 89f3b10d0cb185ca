# Corrections of verl/experimental/fully_async_policy/fully_async_trainer.py (0.9.1): a method of which lines change places.
# - The metrics of a step are added before those of its weight update are logged.

from replaced import replaced

_LOG = "self._fit_log_aggregated_training_metrics(rollout_reset_timing_raw)"

# Ray makes a handle of the class; without Ray, as in an audit, the name is the class.
_Trainer = getattr(getattr(FullyAsyncTrainer, "__ray_metadata__", None), "modified_class", FullyAsyncTrainer)
_Trainer.fit_step = replaced(
    _Trainer,
    "fit_step",
    {
        f"    if rollout_reset_timing_raw is not None:\n        {_LOG}\n    self._fit_postprocess_step()\n": (
            f"    self._fit_postprocess_step()\n    if rollout_reset_timing_raw is not None:\n        {_LOG}\n"
        ),
    },
)
