"""Preconditions of a call in the framework's trainer; each returns the reason why a case violates it, or ""."""

import torch

from rl_sentinel.core.codec import Inputs


def prompts_are_contiguous(inputs: Inputs) -> str:
    """Require that the responses of a prompt are consecutive rows, because the framework groups by position."""
    labels = torch.unique_consecutive(inputs.batch.group).tolist()
    scattered = len(labels) != len(set(labels))
    return "responses of a prompt are not consecutive, and the framework groups by position" if scattered else ""


def prompts_repeat_in_order(inputs: Inputs) -> str:
    """Require that row ``i`` belongs to prompt ``i % G``: all prompts in order, once for each response."""
    labels = inputs.batch.group.tolist()
    prompts = list(dict.fromkeys(labels))
    repeated = len(labels) % len(prompts or [0]) == 0 and labels == prompts * (len(labels) // len(prompts or [0]))
    if repeated:
        return ""
    return "the prompts do not follow in the same order once per response, and the call groups rows by that order"


def group_sizes(inputs: Inputs) -> list[int]:
    """The number of responses of each prompt, in row order."""
    sizes: list[int] = torch.unique_consecutive(inputs.batch.group, return_counts=True)[1].tolist()
    return sizes


def groups_are_equal(inputs: Inputs) -> str:
    """Require that every prompt has the same number of responses."""
    unequal = len(set(group_sizes(inputs))) > 1
    return "prompts have different numbers of responses, and the call takes one number for all" if unequal else ""


def has_trained_token(inputs: Inputs) -> str:
    """Require that at least one token of the batch is trained."""
    return "" if bool(inputs.batch.live.any()) else "no token of the batch is trained"


def no_empty_response(inputs: Inputs) -> str:
    """Require that every response has at least one token."""
    return "a response has no token" if bool((inputs.batch.length == 0).any()) else ""


def equal_parts(inputs: Inputs) -> str:
    """Require that the rows divide evenly into ranks and their micro-batches."""
    rows, parts = inputs.mini_batch.rows, inputs.layout.ranks * inputs.layout.micro_batches
    return f"{rows} rows do not divide into {parts} equal parts" if rows % parts else ""


def equal_micro_batches(inputs: Inputs) -> str:
    """Require that the rows divide evenly into the micro-batches."""
    rows, parts = inputs.batch.rows, inputs.layout.micro_batches
    return f"{rows} rows do not divide into {parts} equal micro-batches" if rows % parts else ""


def every_micro_batch_trains(inputs: Inputs) -> str:
    """Require that each micro-batch has a trained token."""
    parts = inputs.batch.live.chunk(inputs.layout.micro_batches)
    return "" if all(bool(part.any()) for part in parts) else "a micro-batch has no trained token"


def every_row_trains(inputs: Inputs) -> str:
    """Require that every response has a trained token."""
    return "" if bool(inputs.batch.live.all()) else "a response has no trained token"


def versions_never_decrease(inputs: Inputs) -> str:
    """Require that the weight versions within a response never decrease."""
    falls = (inputs.batch.version.diff(dim=1) < 0) & inputs.batch.valid[:, 1:]
    return "a response has a token of older weights after one of newer weights" if bool(falls.any()) else ""


def last_token_trains(inputs: Inputs) -> str:
    """Require that the last token of every response is trained."""
    batch = inputs.batch
    last = batch.mask.gather(1, (batch.length - 1).clamp(min=0).unsqueeze(1))
    return "" if bool(last.all()) else "the last token of a response is not trained"


def within_limit(inputs: Inputs) -> str:
    """Require responses of at most ``limit`` tokens, a number of the setting that no sampler exceeds."""
    limit = int(inputs.settings["limit"] or 0)
    return f"no response is longer than {limit} tokens" if int(inputs.batch.length.max()) > limit else ""
