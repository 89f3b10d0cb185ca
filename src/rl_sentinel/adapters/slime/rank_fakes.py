"""Fakes for slime's data-parallel ranks: Ray's object store, the gathering of metrics, and the trackers."""

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

from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.scripted_sampling import fit_to_length
from rl_sentinel.adapters.slime.context_rank_fakes import Spans, merge_shares, spans_on_rank
from rl_sentinel.adapters.slime.fakes import compute_advantages, data_in_store
from rl_sentinel.adapters.slime.packing import each_rank

#: Keys of the columns that are split among the ranks that share a sequence, after a rollout.
SHARED_ROWS = frozenset({"rollout_log_probs", "teacher_log_probs"})

#: Names under which a module that logs imports the tracker.
_TRACKERS = ("logging_utils", "tracking_utils", "wandb")


def receive_rollout(
    manager: Any,  # noqa: ANN401 - slime's RolloutManager
    receive: Callable[..., Any],
    data: dict[str, Any],
    dp_size: int,
) -> list[dict[str, Any]]:
    """Let each rank receive a rollout, and return the data of each rank.

    Like Ray's object store, the fake store returns copies.
    """
    if "data_buffer" in inspect.signature(receive).parameters:
        return _fetched(manager, receive, data, dp_size)
    with _stored(manager, receive, data, dp_size) as stored:
        return [receive(manager.args, stored, rank, dp_size) for rank in range(dp_size)]


def _fetched(
    manager: Any,  # noqa: ANN401 - slime's RolloutManager
    receive: Callable[..., Any],
    data: dict[str, Any],
    dp_size: int,
) -> list[dict[str, Any]]:
    """The result of :func:`receive_rollout` in the first revisions, whose ranks fetch a rollout and store their part.

    The first of them store the part in their module, later ones in a dict of the caller. The column ``round_number``,
    which they copy, has the index of each row.
    """
    numbered = {**data, "round_number": list(range(len(data["tokens"])))}
    buffer = SimpleNamespace(get_data=SimpleNamespace(remote=lambda _rollout: numbered))
    parameters = inspect.signature(receive).parameters
    ranks = []
    with _stored(manager, receive, data, dp_size):
        for rank in range(dp_size):
            part: dict[str, Any] = {} if "rollout_data" in parameters else receive.__globals__["get_local_storage"]()
            own = {"dp_rank": rank, "dp_size": dp_size, "rollout_data": part}
            with replaced_globals(vars(importlib.import_module("megatron.core").mpu), **_data_parallel(rank, dp_size)):
                receive(0, manager.args, buffer, **{name: value for name, value in own.items() if name in parameters})
            ranks.append({**part, "partition": part.pop("round_number")})
            part.clear()
    return ranks


def _data_parallel(rank: int, size: int) -> dict[str, Callable[..., int]]:
    """Megatron's functions that return this data-parallel rank and the number of ranks."""
    state = {"get_data_parallel_world_size": size, "get_data_parallel_rank": rank}
    return {name: lambda number=number, **_options: number for name, number in state.items()}


def load_rollout(  # noqa: PLR0913 - functions of the target, and their arguments
    manager: Any,  # noqa: ANN401 - slime's RolloutManager
    load: Callable[..., Any],
    actor: type,
    data: dict[str, Any],
    dp_size: int,
    context: int,
) -> list[dict[str, Any]]:
    """Let each rank of the trainer load a rollout, and return its data; ``context`` ranks share each sequence.

    Values per token are merged from these ranks. Missing values of a rank are infinite; if a rank has too many
    values, its last value is.
    """
    trainer, loaded = bare_instance(actor, args=manager.args), []
    mpu: Any = importlib.import_module("megatron.core").mpu
    device = SimpleNamespace(current_device=lambda: "cpu")
    receive = load.__globals__["process_rollout_data"]
    with _stored(manager, receive, data, dp_size) as stored, replaced_globals(load.__globals__, accelerator=device):
        for rank in range(dp_size):
            with replaced_globals(vars(mpu), **_data_parallel(rank, dp_size)):
                shares = [
                    (load(trainer, stored), spans_on_rank(load, data, context)) for _ in each_rank({"ranks": context})
                ]
            loaded.append(_put_together([part for part, _ in shares], [spans for _, spans in shares]))
    return loaded


def _put_together(parts: list[dict[str, Any]], spans: list[list[Spans]]) -> dict[str, Any]:
    """The data of one data-parallel rank, merged from the ranks that share its sequences."""
    order = places_of(parts[0])
    spans = [[rank[place] for place in order] for rank in spans]
    whole = dict(parts[0])
    for key in SHARED_ROWS & whole.keys():
        rows = [
            [
                fit_to_length(list(row), sum(high - low for low, high in chunks), float("inf"))
                for row, chunks in zip(part[key], rank, strict=True)
            ]
            for part, rank in zip(parts, spans, strict=True)
        ]
        whole[key] = merge_shares(rows, spans, [int(length) for length in whole["response_lengths"]])
    return whole


@contextmanager
def _stored(
    manager: Any,  # noqa: ANN401 - slime's RolloutManager
    receive: Callable[..., Any],
    data: dict[str, Any],
    dp_size: int,
) -> Iterator[Any]:
    """Store the data of a rollout in a fake of Ray's object store, which returns copies."""
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
            yield SimpleNamespace(inner=data)
        else:
            takes_size = "dp_size" in inspect.signature(split).parameters
            yield split(manager, data, **({"dp_size": dp_size} if takes_size else {}))


def received_rows(ranks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The data of all ranks. Each key has one entry per sample, in the order of the rollout."""
    rows = [(place, rank, n) for rank, data in enumerate(ranks) for n, place in enumerate(places_of(data))]
    keys = [key for key in ranks[0] if all(_per_sample(data, key) for data in ranks)]
    return {key: [ranks[rank][key][n] for _, rank, n in sorted(rows)] for key in keys}


def columns_of_others(received: dict[str, list[Any]], samples: list[Any]) -> list[float]:
    """The number of columns of each row with values of another sample: index, state, trained tokens or images."""
    columns: dict[str, list[Any]] = {
        "sample_indices": [sample.index for sample in samples],
        "truncated": [str(getattr(sample, "status", "")).endswith("TRUNCATED") for sample in samples],
        "rollout_mask_sums": [sum(mask) for mask in received["loss_masks"]],
    }
    known = {key: column for key, column in columns.items() if key in received}
    images = received.get("multimodal_train_inputs", [None] * len(samples))
    return [
        float(sum(float(received[key][n]) != float(column[n]) for key, column in known.items()))
        + float(_number_of(images[n]) != _number_of(getattr(samples[n], "multimodal_train_inputs", None)))
        for n in range(len(samples))
    ]


def _number_of(images: dict[str, Tensor] | None) -> float:
    """The number that the images of a sample encode; 0 for a sample without images."""
    return 0.0 if images is None else float(images["pixel_values"].sum())


def log_received(
    log: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    ranks: list[dict[str, Any]],
    log_probs: list[Tensor],
) -> dict[str, Any]:
    """Let the ranks log; return their metrics, and the mean length of responses that they count as correct (0 if none).

    ``log_probs`` has the model's log-probs of each sample, in the order of the rollout.
    """
    for data in ranks:
        data["log_probs"] = [log_probs[place] for place in places_of(data)]
        data["loss_masks"] = [torch.as_tensor(mask, dtype=torch.int32) for mask in data["loss_masks"]]
        # As the actor's _get_rollout_data does.
        if "rollout_log_probs" in data:
            data["rollout_log_probs"] = [torch.as_tensor(row) for row in data["rollout_log_probs"]]
        if "rollout_mask_sums" in data:
            data["rollout_mask_sums"] = torch.as_tensor(data["rollout_mask_sums"], dtype=torch.float32)
    logged = log_step(log, args, ranks)
    correct = [length for data in ranks for length in data["correct_response_lengths"]]
    return {**logged, "correct_lengths": sum(correct) / max(len(correct), 1)}


def log_step(
    log: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    ranks: list[dict[str, Any]],
    advantages: Callable[..., Any] | None = None,
) -> dict[str, Any]:
    """Let each data-parallel rank compute ``advantages``, if given, and log; return what rank 0 logs.

    The ranks run one after the other. Rank 0 runs last and gathers the metrics of all ranks.
    """
    if advantages is not None:
        for data in ranks:
            compute_advantages(advantages, args, data)
    sent: list[list[Any]] = [[] for _ in ranks]
    logged: dict[str, Any] = {}
    takes = len(inspect.signature(log).parameters) > len(("rollout_id", "args"))
    for rank, data in reversed(list(enumerate(ranks))):
        objects: list[Any] = sent[rank]

        def receive(numbers: Any, gathered: list[Any] | None, objects: list[Any] = objects, **_options: object) -> None:  # noqa: ANN401
            objects.append(numbers)
            if gathered is not None:
                gathered[:] = [numbers, *(others[len(objects) - 1] for others in sent[1:])]

        def own(data: dict[str, Any] = data) -> dict[str, Any]:
            return data

        with (
            replaced_globals(log.__globals__, **recording_trackers(logged)),
            _rank_of(rank, len(ranks), receive),
            data_in_store(log, own),
        ):
            log(0, args, *([data] if takes else []))
    return logged


def recording_trackers(logged: dict[str, Any]) -> dict[str, Any]:
    """Fake trackers, by name, which write metrics to ``logged``."""

    def record(*arguments: Any, **_options: object) -> None:  # noqa: ANN401 - as the trackers
        for metrics in arguments:
            logged.update(metrics if isinstance(metrics, dict) else {})

    return dict.fromkeys(_TRACKERS, SimpleNamespace(log=record))


def places_of(data: dict[str, Any]) -> list[int]:
    """The position of each sample of a rank in the rollout."""
    places: list[int] = data["partition"] if "partition" in data else data["sample_indices"]
    return [int(place) for place in places]


def _per_sample(data: dict[str, Any], key: str) -> bool:
    value = data.get(key)
    return isinstance(value, list | Tensor) and len(value) == len(places_of(data))


@contextmanager
def _rank_of(rank: int, size: int, gather: Callable[..., Any]) -> Iterator[None]:
    """Replace the functions for rank, world size and gathering in this process."""
    mpu: Any = importlib.import_module("megatron.core").mpu
    get_rank = dist.get_rank
    world = {"get_rank": lambda group=None: rank if group is None else get_rank(group), "gather_object": gather}
    with replaced_globals(vars(mpu), **_data_parallel(rank, size)), replaced_globals(vars(dist), **world):
        yield


@contextmanager
def _current_device_is_cpu() -> Iterator[None]:
    """Make the CPU the current device, because earlier revisions move received data to the GPU."""
    original = torch.cuda.current_device
    try:
        torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
        yield
    finally:
        torch.cuda.current_device = original
