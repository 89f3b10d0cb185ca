"""Doubles for slime: Megatron's loop over micro-batches with a model that answers from a table, ranks, Ray's store."""

import importlib
import inspect
from collections.abc import Callable
from types import SimpleNamespace
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


def log_step(
    advantages: Callable[..., Any],
    log: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    ranks: list[dict[str, Any]],
) -> dict[str, float]:
    """What the first of several data-parallel ranks logs of a rollout, after each has computed its advantages.

    Ranks run one after the other; the first one runs last, and has the numbers of all.
    """
    for data in ranks:
        advantages(args, data)
    module = log.__globals__
    mpu: Any = importlib.import_module("megatron.core").mpu
    gather, own = module["gather_log_data"], {name: module[name] for name in ("dist", "logging_utils")}
    size = mpu.get_data_parallel_world_size
    sent: list[Any] = []
    reduced: dict[str, float] = {}

    def receive(numbers: Any, gathered: list[Any] | None, **_about: object) -> None:  # noqa: ANN401 - what is logged
        if gathered is None:
            sent.append(numbers)
        else:
            gathered[:] = [numbers, *sent]

    def keep(*told: Any) -> Any:  # noqa: ANN401 - as the function
        result = gather(*told)
        reduced.update(result or {})
        return result

    try:
        mpu.get_data_parallel_world_size = lambda **_about: len(ranks)
        module |= {"gather_log_data": keep, "logging_utils": SimpleNamespace(log=lambda *_a, **_k: None)}
        for rank, data in reversed(list(enumerate(ranks))):
            module["dist"] = SimpleNamespace(get_rank=lambda rank=rank: rank, gather_object=receive)
            log(0, args, data)
    finally:
        module |= {"gather_log_data": gather, **own}
        mpu.get_data_parallel_world_size = size
    return reduced


def bare_instance(owner: type, **attributes: object) -> Any:  # noqa: ANN401 - of that class
    """An object of a class with these attributes, whose ``__init__`` was not run: it would start engines."""
    made: Any = object.__new__(owner)
    vars(made).update(attributes)
    return made


def split_and_receive(
    manager: Any,  # noqa: ANN401 - slime's RolloutManager
    receive: Callable[..., Any],
    data: dict[str, Any],
    dp_size: int,
) -> dict[str, list[Any]]:
    """The data of a rollout as the ranks receive it, each key with one entry per sample in the order of the rollout.

    Ray's object store hands on what it gets.
    """
    split = type(manager)._split_train_data_by_dp  # noqa: SLF001 - the method that is audited
    modules = [split.__globals__, receive.__globals__]
    store = SimpleNamespace(put=lambda value, **_about: value, get=lambda value: value)
    before = [module.get("ray") for module in modules]
    told = {"dp_size": dp_size} if "dp_size" in inspect.signature(split).parameters else {}
    try:
        for module in modules:
            module["ray"] = store
        sent = split(manager, data, **told)
        ranks = [receive(manager.args, sent, rank, dp_size) for rank in range(dp_size)]
    finally:
        for module, ray in zip(modules, before, strict=True):
            module["ray"] = ray
    rows = [(place, rank, n) for rank, one in enumerate(ranks) for n, place in enumerate(one["partition"])]
    keys = [key for key in ranks[0] if key in data and len(ranks[0][key]) == len(ranks[0]["partition"])]
    return {key: [ranks[rank][key][n] for _, rank, n in sorted(rows)] for key in keys}


def filter_prompts(check: Callable[..., Any], args: Any, prompts: list[list[Any]]) -> list[float]:  # noqa: ANN401
    """1 for each sample of a prompt that the filter keeps, 0 for each of another."""
    kept = []
    for samples in prompts:
        answer = check(args, samples)
        kept += [float(getattr(answer, "keep", answer))] * len(samples)
    return kept
