# Corrections of areal/infra/workflow_executor.py (1.0.4): a method of which a few expressions are replaced.
# - The oldest version of a response is that of its trained tokens; tokens of the prompt carry -1.

from replaced import replaced

_OLDEST = "min(v for v, m in zip(traj['versions'][i].tolist(), mask) if m) if 'versions' in traj else head_version"

WorkflowExecutor._dump_trajectory = replaced(
    WorkflowExecutor, "_dump_trajectory", {'"head_version": head_version': f'"head_version": {_OLDEST}'}
)
