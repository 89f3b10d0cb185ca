"""Doubles for slime's data-parallel ranks: Ray's object store, the gather of metrics, and the trackers."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.replacement import replaced_globals

#: Names under which a module that logs imports the tracker.
_TRACKERS = ("logging_utils", "tracking_utils", "wandb")


def receive_rollout(
    manager: Any,  # noqa: ANN401 - slime's RolloutManager
    receive: Callable[..., Any],
    data: dict[str, Any],
    dp_size: int,
) -> list[dict[str, Any]]:
    """The data of a rollout as each rank receives it; like Ray's object store, the double returns copies."""
    split = getattr(type(manager), "_split_train_data_by_dp", None)
    modules = [function.__globals__ for function in (split, receive) if function is not None]
    store = SimpleNamespace(put=lambda value, **_options: value, get=deepcopy)
    single_process = {"get_rank": lambda *_a: 0, "broadcast_object_list": lambda *_a, **_k: None}
    with (
        replaced_globals(*modules, ray=store),
        replaced_globals(vars(dist), **single_process),
        _current_device_is_cpu(),
    ):
        if split is None:
            stored: Any = SimpleNamespace(inner=data)
        else:
            takes_size = "dp_size" in inspect.signature(split).parameters
            stored = split(manager, data, **({"dp_size": dp_size} if takes_size else {}))
        return [receive(manager.args, stored, rank, dp_size) for rank in range(dp_size)]


def received_rows(ranks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The data of all ranks: under each key, one entry per sample in the order of the rollout."""
    rows = [(place, rank, n) for rank, data in enumerate(ranks) for n, place in enumerate(_places(data))]
    keys = [key for key in ranks[0] if all(_per_sample(data, key) for data in ranks)]
    return {key: [ranks[rank][key][n] for _, rank, n in sorted(rows)] for key in keys}


def columns_of_others(received: dict[str, list[Any]], samples: list[Any]) -> list[float]:
    """The number of columns of each row that belong to another sample: index, state, number of trained tokens."""
    columns: dict[str, list[Any]] = {
        "sample_indices": [sample.index for sample in samples],
        "truncated": [str(getattr(sample, "status", "")).endswith("TRUNCATED") for sample in samples],
        "rollout_mask_sums": [sum(mask) for mask in received["loss_masks"]],
    }
    known = {key: own for key, own in columns.items() if key in received}
    return [
        float(sum(float(received[key][n]) != float(own[n]) for key, own in known.items())) for n in range(len(samples))
    ]


def log_received(
    log: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    ranks: list[dict[str, Any]],
    log_probs: list[Tensor],
) -> dict[str, Any]:
    """The metrics that the ranks log, and the mean length of the responses that they count as correct.

    ``log_probs`` has the model's log-probs of each sample, in the order of the rollout.
    """
    for data in ranks:
        data["log_probs"] = [log_probs[place] for place in _places(data)]
        data["loss_masks"] = [torch.as_tensor(mask, dtype=torch.int32) for mask in data["loss_masks"]]
    logged = log_step(log, args, ranks)
    correct = [length for data in ranks for length in data["correct_response_lengths"]]
    return {**logged, "correct_lengths": sum(correct) / max(len(correct), 1)}


def log_step(
    log: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    ranks: list[dict[str, Any]],
    advantages: Callable[..., Any] | None = None,
) -> dict[str, Any]:
    """The metrics that rank 0 logs, after each data-parallel rank has computed its advantages.

    Ranks run one after the other; rank 0 runs last and gathers the metrics of all.
    """
    if advantages is not None:
        for data in ranks:
            advantages(args, data)
    sent: list[list[Any]] = [[] for _ in ranks]
    logged: dict[str, Any] = {}
    for rank, data in reversed(list(enumerate(ranks))):
        objects: list[Any] = sent[rank]

        def receive(numbers: Any, gathered: list[Any] | None, objects: list[Any] = objects, **_options: object) -> None:  # noqa: ANN401
            objects.append(numbers)
            if gathered is not None:
                gathered[:] = [numbers, *(others[len(objects) - 1] for others in sent[1:])]

        with replaced_globals(log.__globals__, **recording_trackers(logged)), _rank_of(rank, len(ranks), receive):
            log(0, args, data)
    return logged


def recording_trackers(logged: dict[str, Any]) -> dict[str, Any]:
    """Doubles of the trackers, by name, that write metrics to ``logged``."""

    def record(*arguments: Any, **_options: object) -> None:  # noqa: ANN401 - as the trackers
        for metrics in arguments:
            logged.update(metrics if isinstance(metrics, dict) else {})

    return dict.fromkeys(_TRACKERS, SimpleNamespace(log=record))


def _places(data: dict[str, Any]) -> list[int]:
    """The position in the rollout of each sample of a rank."""
    places: list[int] = data["partition"] if "partition" in data else data["sample_indices"]
    return [int(place) for place in places]


def _per_sample(data: dict[str, Any], key: str) -> bool:
    value = data.get(key)
    return isinstance(value, list | Tensor) and len(value) == len(_places(data))


@contextmanager
def _rank_of(rank: int, size: int, gather: Callable[..., Any]) -> Iterator[None]:
    """Replace the rank, the world size and the gather of this process."""
    mpu: Any = importlib.import_module("megatron.core").mpu
    state = {"get_data_parallel_world_size": lambda **_options: size, "get_data_parallel_rank": lambda **_options: rank}
    get_rank = dist.get_rank
    world = {"get_rank": lambda group=None: rank if group is None else get_rank(group), "gather_object": gather}
    with replaced_globals(vars(mpu), **state), replaced_globals(vars(dist), **world):
        yield


@contextmanager
def _current_device_is_cpu() -> Iterator[None]:
    """Make the CPU the current device: earlier revisions move received data to the GPU."""
    original = torch.cuda.current_device
    try:
        torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
        yield
    finally:
        torch.cuda.current_device = original
