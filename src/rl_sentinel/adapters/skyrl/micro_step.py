"""One micro-batch of SkyRL's worker, as the releases train it."""

from typing import Any


def micro_step(worker: Any, batches: Any, batch: Any, number: int, parts: int) -> dict[str, float]:  # noqa: ANN401
    """Train one micro-batch of ``parts``, as ``ppo_train`` of the release does."""
    if hasattr(worker, "training_step"):
        metrics: dict[str, float] = worker.training_step(batch, 0, number, parts)
    else:
        metrics = worker.forward_backward(batches.batch_to_experience(batch), microbatch_weight=1 / parts)
    return metrics
