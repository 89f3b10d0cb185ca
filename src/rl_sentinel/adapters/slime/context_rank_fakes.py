"""Fakes for slime's context-parallel ranks: each thread is a rank with two chunks of every sequence."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn as differentiable
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_number, run_on_ranks
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.slime.fakes import (
    call_on_data,
    counts_of_step,
    data_in_store,
    fixed_output,
    returns_pair,
)

#: Keys whose tensors are split among the ranks: of a micro-batch, of a rollout's data and of the model's output.
SHARED = frozenset(
    {"log_probs", "ref_log_probs", "rollout_log_probs", "values", "advantages", "returns", "entropy", "kl"}
)

#: The group of the context-parallel ranks, by which the fake collectives recognize it.
_CONTEXT = object()

#: Ranges of response positions: the first position, and the position after the last.
Spans = list[tuple[int, int]]


def spans(offsets: Callable[..., Any], total: int, response: int) -> Spans:
    """The ranges of response positions that the two chunks of this rank predict, computed with slime's offsets."""
    _, _, logits, _ = offsets(total, response)
    before = total - response - 1
    return [(low - before, high - before) if low < high else (0, 0) for low, high in logits]


def share(data: Mapping[str, Any], rank_spans: list[Spans]) -> dict[str, Any]:
    """The data of one rank: tensors under the keys in :data:`SHARED`, reduced to the rank's positions."""
    return {
        key: [torch.cat([row[low:high] for low, high in chunks]) for row, chunks in zip(value, rank_spans, strict=True)]
        if key in SHARED
        else value
        for key, value in data.items()
    }


def merge_shares(parts: list[list[Tensor]], spans_by_rank: list[list[Spans]], lengths: list[int]) -> list[Tensor]:
    """The whole tensor of each sample, merged from the ranks' parts."""
    samples = []
    for n, length in enumerate(lengths):
        whole = parts[0][n].new_zeros(length)
        for rank, rank_spans in enumerate(spans_by_rank):
            places = torch.cat([torch.arange(low, high) for low, high in rank_spans[n]])
            whole = whole.index_add(0, places, parts[rank][n])
        samples.append(whole)
    return samples


def advantages_in_context(
    compute: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    data: dict[str, Any],
    size: int,
) -> dict[str, list[Tensor]]:
    """Run ``compute_advantages_and_returns`` on ``size`` ranks; return the merged values that it adds to their data."""
    shares: dict[int, dict[str, Any]] = {}

    def work(rank: int) -> tuple[list[Spans], dict[str, Any]]:
        rank_spans = spans_on_rank(compute, data, size)
        shares[rank] = share(data, rank_spans)
        call_on_data(compute, args, shares[rank])
        return rank_spans, shares[rank]

    with context_of(size), data_in_store(compute, lambda: shares[rank_number()]):
        ranks = run_on_ranks(size, work)
    spans_by_rank = [rank_spans for rank_spans, _ in ranks]
    computed = [key for key in ("advantages", "returns", "kl") if key in ranks[0][1]]
    lengths = data["response_lengths"]
    return {key: merge_shares([data[key] for _, data in ranks], spans_by_rank, lengths) for key in computed}


def train_step_in_context(
    loss_function: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    micro_batches: list[dict[str, Any]],
    global_batch_size: int,
    size: int,
) -> dict[str, Any]:
    """Run all micro-batches on all ranks; return the loss, reduced as in Megatron, and the report of each call.

    Megatron divides by the number of micro-batches (schedules.py, forward_step: a loss function that returns three
    values), and averages gradients over the ranks. With a loss per token, Megatron does neither. It divides the sum by
    the number of tokens that all ranks counted.
    """
    pair = returns_pair(loss_function.__globals__["get_log_probs_and_entropy"])
    more = counts_of_step(loss_function, len(micro_batches), global_batch_size)
    total, tokens, reported = torch.zeros(()), torch.zeros(()), []
    for micro_batch in micro_batches:
        batch = {key: value for key, value in micro_batch.items() if key != "output"}
        shares: dict[int, Any] = {}

        def output_of_rank(*args: object, shares: dict[int, Any] = shares, **options: object) -> Any:  # noqa: ANN401
            return fixed_output(shares[rank_number()], pair=pair)(*args, **options)

        def work(
            rank: int,
            batch: dict[str, Any] = batch,
            shares: dict[int, Any] = shares,
            output: dict[str, Any] = micro_batch["output"],
        ) -> Any:  # noqa: ANN401 - as the loss
            rank_spans = spans_on_rank(loss_function, batch, size)
            shares[rank] = share(output, rank_spans)
            logits = torch.zeros(1, sum(high - low for chunks in rank_spans for low, high in chunks), 1)
            return loss_function(args, share(batch, rank_spans), **more, logits=logits)

        with context_of(size), replaced_globals(loss_function.__globals__, get_log_probs_and_entropy=output_of_rank):
            for loss, counted, report in run_on_ranks(size, work):
                total, tokens = total + loss, tokens + counted
                reported.append(report)
    per_token = args.calculate_per_token_loss
    return {"loss": total / (tokens if per_token else len(micro_batches) * size), "reported": reported}


@contextmanager
def context_of(size: int) -> Iterator[None]:
    """Replace Megatron's parallel state and torch's collectives with fakes for ``size`` context-parallel threads."""
    mpu: Any = importlib.import_module("megatron.core").mpu
    state = {
        "get_context_parallel_world_size": lambda **_options: size,
        "get_context_parallel_rank": lambda **_options: rank_number(),
        "get_context_parallel_group": lambda **_options: _CONTEXT,
        "get_data_parallel_world_size": lambda with_context_parallel=False, **_options: (
            size if with_context_parallel else 1
        ),
        "get_data_parallel_group": lambda with_context_parallel=False, **_options: (
            _CONTEXT if with_context_parallel else one_process_group()
        ),
    }
    with (
        replaced_globals(vars(mpu), **state),
        replaced_globals(vars(dist), all_reduce=_all_reduce, all_gather_object=_all_gather_object),
        replaced_globals(vars(differentiable), all_reduce=_all_reduce_with_gradient),
    ):
        yield


def spans_on_rank(function: Callable[..., Any], data: Mapping[str, Any], size: int) -> list[Spans]:
    """The spans of each sample on this context-parallel rank; several ranks have them from slime's ``cp_utils``."""
    if size == 1:
        return [[(0, int(length))] for length in data["response_lengths"]]
    offsets = importlib.import_module(f"{function.__module__.rpartition('.')[0]}.cp_utils")
    totals = data.get("total_lengths") or [len(tokens) for tokens in data["tokens"]]  # early revisions count them later
    sizes = zip(totals, data["response_lengths"], strict=True)
    return [spans(offsets.get_logits_and_tokens_offset_with_cp, int(total), int(length)) for total, length in sizes]


def _all_reduce(
    tensor: Tensor,
    op: Any = dist.ReduceOp.SUM,  # noqa: ANN401 - torch's
    group: object = None,
    **_options: object,
) -> None:
    """Compute the sum or maximum over the context-parallel ranks, in place. Every other group has one rank."""
    if group is not None and group is not _CONTEXT:
        return
    tensors = torch.stack(gather_from_ranks(tensor.detach().clone()))
    tensor.copy_(tensors.amax(0) if op == dist.ReduceOp.MAX else tensors.sum(0))


def _all_gather_object(gathered: list[Any], item: object, group: object = None) -> None:
    """Write the objects of all ranks in the group to the list ``gathered``."""
    gathered[:] = gather_from_ranks(item) if group is None or group is _CONTEXT else [item]


def _all_reduce_with_gradient(tensor: Tensor, op: object = None, group: object = None) -> Tensor:  # noqa: ARG001 - a sum
    """The sum over the ranks, with gradients."""
    return torch.stack(gather_from_ranks(tensor)).sum(0)
