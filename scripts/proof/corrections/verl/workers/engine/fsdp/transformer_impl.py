# Corrections of verl/workers/engine/fsdp/transformer_impl.py (0.9.1): a method of which lines change places.
# - The rate that is logged is read before the schedule steps.

from replaced import replaced

FSDPEngine.lr_scheduler_step = replaced(
    FSDPEngine,
    "lr_scheduler_step",
    {
        "self.lr_scheduler.step()\n    lr = self.lr_scheduler.get_last_lr()[0]": (
            "lr = self.lr_scheduler.get_last_lr()[0]\n    self.lr_scheduler.step()"
        ),
    },
)
