# Corrections of areal/engine/megatron_utils/checkpointer.py (1.0.4): methods of which a few expressions are replaced.
# - The template of a load is made for loading, so that a new optimizer has moments to load.

from replaced import replaced

_RNG = "with_rng: bool = True,"
_STATE = "self.optimizer.sharded_state_dict(state_dict"

MegatronCheckpointManager.generate_state_dict = replaced(
    MegatronCheckpointManager,
    "generate_state_dict",
    {_RNG: f"{_RNG}\n        is_loading: bool = False,", _STATE: f"{_STATE}, is_loading=is_loading"},
)
MegatronCheckpointManager.load_checkpoint = replaced(
    MegatronCheckpointManager,
    "load_checkpoint",
    {"with_model, with_optimizer, with_rng\n": "with_model, with_optimizer, with_rng, is_loading=True\n"},
)
