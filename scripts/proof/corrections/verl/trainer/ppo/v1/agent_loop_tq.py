# Corrections of verl/trainer/ppo/v1/agent_loop_tq.py (0.9.1): a method of which an expression is replaced.
# - A request has the configured penalty for repetition.

from replaced import replaced

# Ray makes a handle of the class; without Ray, as in an audit, the name is the class.
_Worker = getattr(getattr(AgentLoopWorkerTQ, "__ray_metadata__", None), "modified_class", AgentLoopWorkerTQ)
_Worker.generate_sequences = replaced(
    _Worker, "generate_sequences", {"repetition_penalty=1.0": "repetition_penalty=config.repetition_penalty"}
)
