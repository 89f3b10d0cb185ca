# Corrections of verl/workers/engine_workers.py (0.9.1): a method of which an expression is replaced.
# - A checkpoint engine also sends the adapters of LoRA, if they are not merged.

from itertools import chain

from replaced import replaced


def _with_adapters(engine):
    base, config = engine.get_per_tensor_param()
    if config is None:
        return base, config
    adapters, _ = engine.get_per_tensor_param(base_sync_done=True)
    return chain(base.items() if isinstance(base, dict) else base, adapters), config


ActorRolloutRefWorker.update_weights = replaced(
    ActorRolloutRefWorker,
    "update_weights",
    {"per_tensor_param, _ = self.actor.engine.get_per_tensor_param()": (
        "per_tensor_param, _ = _with_adapters(self.actor.engine)"
    )},
)
