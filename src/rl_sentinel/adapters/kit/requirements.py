"""Conditions under which a framework's trainer could make a call; each returns a reason against it, or ""."""

import torch

from rl_sentinel.core.codec import Inputs


def prompts_are_contiguous(inputs: Inputs) -> str:
    """Responses of a prompt stand together: the framework finds them by position."""
    labels = torch.unique_consecutive(inputs.batch.group).tolist()
    apart = len(labels) != len(set(labels))
    return "responses of a prompt stand apart, and the framework groups by position" if apart else ""


def group_sizes(inputs: Inputs) -> list[int]:
    """Number of responses of each prompt, in the order of the rows."""
    sizes: list[int] = torch.unique_consecutive(inputs.batch.group, return_counts=True)[1].tolist()
    return sizes


def groups_are_equal(inputs: Inputs) -> str:
    """Every prompt has as many responses as any other."""
    unequal = len(set(group_sizes(inputs))) > 1
    return "prompts have different numbers of responses, and the call has one number for all" if unequal else ""


def has_trained_token(inputs: Inputs) -> str:
    """At least one token of the batch is trained."""
    return "" if bool(inputs.batch.live.any()) else "no token of the batch is trained"


def no_empty_response(inputs: Inputs) -> str:
    """Every response has a token."""
    return "a response has no token" if bool((inputs.batch.length == 0).any()) else ""


def equal_parts(inputs: Inputs) -> str:
    """The rows divide evenly among the ranks, and on each among its micro-batches."""
    rows, parts = inputs.mini_batch.rows, inputs.layout.ranks * inputs.layout.micro_batches
    return f"{rows} rows do not divide into {parts} equal parts" if rows % parts else ""


def equal_micro_batches(inputs: Inputs) -> str:
    """The rows divide evenly into the micro-batches."""
    rows, parts = inputs.batch.rows, inputs.layout.micro_batches
    return f"{rows} rows do not divide into {parts} equal micro-batches" if rows % parts else ""


def every_micro_batch_trains(inputs: Inputs) -> str:
    """Each micro-batch has a trained token."""
    parts = inputs.batch.live.chunk(inputs.layout.micro_batches)
    return "" if all(bool(part.any()) for part in parts) else "a micro-batch has no trained token"


def every_row_trains(inputs: Inputs) -> str:
    """Every response has a trained token."""
    return "" if bool(inputs.batch.live.all()) else "a response has no trained token"


def versions_never_decrease(inputs: Inputs) -> str:
    """Weights are never replaced by older ones."""
    falls = (inputs.batch.version.diff(dim=1) < 0) & inputs.batch.valid[:, 1:]
    return "a response has a token of older weights after one of newer weights" if bool(falls.any()) else ""


def last_token_trains(inputs: Inputs) -> str:
    """The last token of every response is trained."""
    batch = inputs.batch
    last = batch.mask.gather(1, (batch.length - 1).clamp(min=0).unsqueeze(1))
    return "" if bool(last.all()) else "the last token of a response is not trained"
