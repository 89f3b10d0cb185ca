"""Preconditions of a call in the framework's trainer: the reason why a case violates one; empty if it does not."""

import torch

from rl_sentinel.core.codec import Inputs


def prompts_are_contiguous(inputs: Inputs) -> str:
    """The reason why a framework that groups by position cannot take the batch; empty if it can.

    The responses of a prompt must be consecutive rows.
    """
    labels = torch.unique_consecutive(inputs.batch.group).tolist()
    scattered = len(labels) != len(set(labels))
    return "responses of a prompt are not consecutive, and the framework groups by position" if scattered else ""


def prompts_repeat_in_order(inputs: Inputs) -> str:
    """The reason why the prompts do not repeat in one order; empty if row ``i`` belongs to prompt ``i % G``."""
    labels = inputs.batch.group.tolist()
    prompts = list(dict.fromkeys(labels))
    repeated = len(labels) % len(prompts or [0]) == 0 and labels == prompts * (len(labels) // len(prompts or [0]))
    if repeated:
        return ""
    return "row i does not belong to prompt i modulo the number of prompts, and the call groups rows in this way"


def group_sizes(inputs: Inputs) -> list[int]:
    """The number of rows of each run of consecutive rows with the same prompt."""
    sizes: list[int] = torch.unique_consecutive(inputs.batch.group, return_counts=True)[1].tolist()
    return sizes


def groups_are_equal(inputs: Inputs) -> str:
    """The reason why prompts differ in their numbers of responses; empty if all have the same number."""
    unequal = len(set(group_sizes(inputs))) > 1
    return "prompts have different numbers of responses, and the call takes one number for all" if unequal else ""


def has_trained_token(inputs: Inputs) -> str:
    """The reason why the batch cannot train: it has no trained token; empty if it has a trained token."""
    return "" if bool(inputs.batch.live.any()) else "no token of the batch is trained"


def no_empty_response(inputs: Inputs) -> str:
    """The reason why a case cannot occur: a response has no token; empty if every response has a token."""
    return "a response has no token" if bool((inputs.batch.length == 0).any()) else ""


def equal_parts(inputs: Inputs) -> str:
    """The reason why the rows do not divide evenly into ranks and their micro-batches; empty if they do."""
    rows, parts = inputs.mini_batch.rows, inputs.layout.ranks * inputs.layout.micro_batches
    return f"{rows} rows do not divide into {parts} equal parts" if rows % parts else ""


def equal_micro_batches(inputs: Inputs) -> str:
    """The reason why the rows do not divide evenly into the micro-batches; empty if they do."""
    rows, parts = inputs.batch.rows, inputs.layout.micro_batches
    return f"{rows} rows do not divide into {parts} equal micro-batches" if rows % parts else ""


def every_micro_batch_trains(inputs: Inputs) -> str:
    """The reason why a case cannot occur: a micro-batch has no trained token; empty if each one trains a token."""
    parts = inputs.batch.live.chunk(inputs.layout.micro_batches)
    return "" if all(bool(part.any()) for part in parts) else "a micro-batch has no trained token"


def every_row_trains(inputs: Inputs) -> str:
    """The reason why a case cannot occur: a response has no trained token; empty if every response trains a token."""
    return "" if bool(inputs.batch.live.all()) else "a response has no trained token"


def versions_never_decrease(inputs: Inputs) -> str:
    """The reason why a case cannot occur: weight versions decrease within a response; empty if they never do."""
    falls = (inputs.batch.version.diff(dim=1) < 0) & inputs.batch.valid[:, 1:]
    return "a response has a token of older weights after one of newer weights" if bool(falls.any()) else ""


def last_token_trains(inputs: Inputs) -> str:
    """The reason why a case cannot occur: the last token of a response is not trained; empty if it always is."""
    batch = inputs.batch
    last = batch.mask.gather(1, (batch.length - 1).clamp(min=0).unsqueeze(1))
    return "" if bool(last.all()) else "the last token of a response is not trained"


def within_limit(inputs: Inputs) -> str:
    """The reason why a sampler could not return a response: it has more than ``limit`` tokens; empty if none has."""
    limit = int(inputs.settings["limit"] or 0)
    return f"no response is longer than {limit} tokens" if int(inputs.batch.length.max()) > limit else ""


def enough_words(texts: int, words: int) -> str:
    """The reason why ``words`` distinct words cannot identify ``texts`` texts; empty if they can."""
    return "the batch has more prompts or rows than there are distinct words to identify them" if texts > words else ""
