"""Doubles for slime: Megatron's loop over micro-batches with a model that answers from a table."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def train_step(
    loss_function: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    micro_batches: list[dict[str, Any]],
    global_batch_size: int,
) -> dict[str, Any]:
    """The losses of all micro-batches as Megatron adds them up, and what each reported.

    The item ``output`` of a micro-batch is what the model answers: its logits, or a dict with the log-probs and the
    entropy of each sample, which then replace those that the loss would compute from logits.
    """
    module = loss_function.__globals__
    own = module["get_log_probs_and_entropy"]
    count = len(micro_batches)
    told = {"num_microbatches": count, "step_global_batch_size": global_batch_size}
    told = {name: value for name, value in told.items() if name in inspect.signature(loss_function).parameters}
    total, tokens, reported = torch.zeros(()), torch.zeros(()), []
    for micro_batch in micro_batches:
        batch = {key: value for key, value in micro_batch.items() if key != "output"}
        logits = output = micro_batch["output"]
        if isinstance(output, dict):
            logits = torch.zeros(1, sum(batch["total_lengths"]), 1)
            module["get_log_probs_and_entropy"] = answering(output)
        try:
            loss, counted, report = loss_function(args, batch, **told, logits=logits)
        finally:
            module["get_log_probs_and_entropy"] = own
        total, tokens = total + loss, tokens + counted
        reported.append(report)
    per_token = args.calculate_per_token_loss
    return {"loss": total / (tokens if per_token else count), "reported": reported}


def answering(output: dict[str, list[Tensor]]) -> Callable[..., tuple[Tensor, dict[str, list[Tensor]]]]:
    """What computes log-probs and entropy from logits, with the given answer."""

    def answer(*_args: object, **_options: object) -> tuple[Tensor, dict[str, list[Tensor]]]:
        return torch.empty(0), dict(output)

    return answer
