"""Doubles for slime: Megatron's loop over micro-batches with a model that answers from a table, and plain objects."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def replaced(*owners: dict[str, Any], **values: Any) -> Iterator[None]:  # noqa: ANN401 - globals of a module
    """The globals of modules with other values, until the context ends; names that they lack are not added."""
    before = [{name: owner[name] for name in values if name in owner} for owner in owners]
    try:
        for owner, own in zip(owners, before, strict=True):
            owner.update({name: values[name] for name in own})
        yield
    finally:
        for owner, own in zip(owners, before, strict=True):
            owner.update(own)


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
    more = counts_of_step(loss_function, count, global_batch_size)
    total, tokens, reported = torch.zeros(()), torch.zeros(()), []
    for micro_batch in micro_batches:
        batch = {key: value for key, value in micro_batch.items() if key != "output"}
        logits = output = micro_batch["output"]
        answer = own
        if isinstance(output, dict):
            logits = torch.zeros(1, sum(batch["total_lengths"]), 1)
            answer = answering(output, pair=returns_pair(own))
        with replaced(module, get_log_probs_and_entropy=answer):
            loss, counted, report = loss_function(args, batch, **more, logits=logits)
        total, tokens = total + loss, tokens + counted
        reported.append(report)
    per_token = args.calculate_per_token_loss
    return {"loss": total / (tokens if per_token else count), "reported": reported}


def counts_of_step(loss_function: Callable[..., Any], micro_batches: int, global_batch_size: int) -> dict[str, int]:
    """The counts of a step that the loss of a release takes."""
    counts = {"num_microbatches": micro_batches, "step_global_batch_size": global_batch_size}
    return {name: count for name, count in counts.items() if name in inspect.signature(loss_function).parameters}


def compute_advantages(compute: Callable[..., Any], args: Any, rollout_data: dict[str, Any]) -> None:  # noqa: ANN401 - a namespace
    """Fill the data of a rollout; before July 2025 the function found it in a store of its process."""
    with data_in_store(compute, lambda: rollout_data):
        call_on_data(compute, args, rollout_data)


def call_on_data(compute: Callable[..., Any], args: Any, rollout_data: dict[str, Any]) -> None:  # noqa: ANN401 - a namespace
    """Call the function with the data, where it takes it."""
    compute(args, rollout_data) if takes_data(compute) else compute(args)


@contextmanager
def data_in_store(compute: Callable[..., Any], data: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """The store of the process, for a function that takes no data: ``data()`` is what the process that asks has."""
    store = {
        "get_local_storage": lambda key: data().get(key),
        "set_local_storage": lambda key, value: data().__setitem__(key, value),
    }
    with replaced(compute.__globals__, **({} if takes_data(compute) else store)):
        yield


def takes_data(compute: Callable[..., Any]) -> bool:
    """Whether the function of a release is given the data of the rollout."""
    return "rollout_data" in inspect.signature(compute).parameters


def answering(output: Mapping[str, list[Tensor]], *, pair: bool) -> Callable[..., Any]:
    """What computes log-probs and entropy from logits, with the given answer, alone or after a tensor."""

    def answer(*_args: object, **_options: object) -> Any:  # noqa: ANN401 - as the release's own
        return (torch.empty(0), dict(output)) if pair else dict(output)

    return answer


def returns_pair(function: Callable[..., Any]) -> bool:
    """Whether a function returns two values: newer releases return an empty tensor beside the table."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return any(isinstance(value, ast.Tuple) for value in returned)


def bare_instance(owner: type, **attributes: object) -> Any:  # noqa: ANN401 - of that class
    """An object of a class with these attributes, whose ``__init__`` was not run: it would start engines."""
    made: Any = object.__new__(owner)
    vars(made).update(attributes)
    return made


def filter_prompts(check: Callable[..., Any], args: Any, prompts: list[list[Any]]) -> list[float]:  # noqa: ANN401
    """1 for each sample of a prompt that the filter keeps, 0 for each of another."""
    kept = []
    for samples in prompts:
        answer = check(args, samples)
        kept += [float(getattr(answer, "keep", answer))] * len(samples)
    return kept


def sft_samples(
    generate: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    generator: Any,  # noqa: ANN401 - slime's MultiTurnLossMaskGenerator
    samples: list[Any],
) -> dict[str, list[Tensor]]:
    """The sequences that the supervised rollout makes of conversations, and which of their tokens it trains.

    The prompt of a sample holds its tokens and their mask: a tokenizer has no part in what is audited.
    """
    generator.get_loss_mask = lambda messages, **_options: messages
    buffer = bare_instance(_Buffer, samples=[[sample] for sample in samples])
    own = {"TOKENIZER": object(), "PROCESSOR": object(), "MASK_GENERATOR": generator, "SAMPLE_PRINTED": True}
    with replaced(generate.__globals__, **own):
        made = [sample[0] for sample in generate(args, 0, buffer)]
    before = [len(sample.tokens) - len(sample.loss_mask) for sample in made]
    masks = [torch.tensor([0] * n + list(sample.loss_mask)) for n, sample in zip(before, made, strict=True)]
    return {"tokens": [torch.tensor(sample.tokens) for sample in made], "masks": masks}


class _Buffer:
    """A data source that hands out what it has."""

    samples: list[list[Any]]

    def get_samples(self, _count: int) -> list[list[Any]]:
        """All samples."""
        return self.samples
