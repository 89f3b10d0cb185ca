"""Fakes for slime's training: Megatron's loop over micro-batches, a model with fixed outputs, and a data source."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.scripted_sampling import WRONG
from rl_sentinel.adapters.slime.arguments import one_rank


def train_step(
    loss_function: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    micro_batches: list[dict[str, Any]],
    global_batch_size: int,
) -> dict[str, Any]:
    """Run all micro-batches; return the loss, reduced as in Megatron, and the report of each micro-batch.

    The item ``output`` of a micro-batch is the model's output: its logits, or a dict with the log-probs and the entropy
    of each sample. The dict replaces the result of ``get_log_probs_and_entropy``.
    """
    module = loss_function.__globals__
    original = module["get_log_probs_and_entropy"]
    count = len(micro_batches)
    more = counts_of_step(loss_function, count, global_batch_size)
    total, tokens, reported = torch.zeros(()), torch.zeros(()), []
    for micro_batch in micro_batches:
        batch = {key: value for key, value in micro_batch.items() if key != "output"}
        logits = output = micro_batch["output"]
        compute = original
        if isinstance(output, dict):
            logits = torch.zeros(1, sum(batch["total_lengths"]), 1)
            compute = fixed_output(output, pair=returns_pair(original))
        with replaced_globals(module, get_log_probs_and_entropy=compute):
            loss, counted, report = loss_function(args=args, batch=batch, **more, logits=logits)
        total, tokens = total + loss, tokens + counted
        reported.append(report)
    per_token = args.calculate_per_token_loss
    return {"loss": total / (tokens if per_token else count), "reported": reported}


def counts_of_step(loss_function: Callable[..., Any], micro_batches: int, global_batch_size: int) -> dict[str, Any]:
    """The keyword arguments for the counts of a step and for the parallel state, if the loss function has them."""
    counts = {"num_microbatches": micro_batches, "step_global_batch_size": global_batch_size}
    known = inspect.signature(loss_function).parameters
    return {name: count for name, count in counts.items() if name in known} | parallel_state(loss_function)


def parallel_state(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword argument with the parallel state of one rank; empty if the function has no such parameter."""
    return {"parallel_state": one_rank()} if "parallel_state" in inspect.signature(function).parameters else {}


def compute_advantages(compute: Callable[..., Any], args: Any, rollout_data: dict[str, Any]) -> None:  # noqa: ANN401 - a namespace
    """Add the advantages to the data of a rollout.

    Before July 2025, the function read the data from the process's storage.
    """
    with data_in_store(compute, lambda: rollout_data):
        call_on_data(compute, args, rollout_data)


def call_on_data(compute: Callable[..., Any], args: Any, rollout_data: dict[str, Any]) -> None:  # noqa: ANN401 - a namespace
    """Call the function, and pass the data if the function has a parameter for it."""
    more = parallel_state(compute)
    compute(args=args, rollout_data=rollout_data, **more) if takes_data(compute) else compute(args)


@contextmanager
def data_in_store(compute: Callable[..., Any], data: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Replace the process's storage with ``data()``, for a function without a parameter for the data."""
    store = {
        "get_local_storage": lambda key=None: data() if key is None else data().get(key),
        "set_local_storage": lambda key, value: data().__setitem__(key, value),
    }
    with replaced_globals(compute.__globals__, **({} if takes_data(compute) else store)):
        yield


def takes_data(compute: Callable[..., Any]) -> bool:
    """Whether the function has a parameter for the data of the rollout."""
    return "rollout_data" in inspect.signature(compute).parameters


def fixed_output(output: Mapping[str, list[Tensor]], *, pair: bool) -> Callable[..., Any]:
    """A fake ``get_log_probs_and_entropy`` that returns ``output``; with ``pair``, an empty tensor and ``output``."""

    def compute(*_args: object, **_options: object) -> Any:  # noqa: ANN401 - as the release's own
        return (torch.empty(0), dict(output)) if pair else dict(output)

    return compute


def returns_pair(function: Callable[..., Any]) -> bool:
    """Whether the function returns two values. Newer releases return an empty tensor before the dict."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return any(isinstance(value, ast.Tuple) for value in returned)


def filter_prompts(check: Callable[..., Any], args: Any, prompts: list[list[Any]]) -> list[float]:  # noqa: ANN401
    """1 for each sample of a prompt that the filter keeps, else 0."""
    keep = []
    for samples in prompts:
        decision = check(args, samples)
        keep += [float(getattr(decision, "keep", decision))] * len(samples)
    return keep


def supervised_samples(
    generate: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    generator: Any,  # noqa: ANN401 - slime's MultiTurnLossMaskGenerator
    samples: list[Any],
    tools: Mapping[int, list[dict[str, Any]]],
) -> dict[str, list[Tensor]]:
    """Run the supervised rollout on conversations; return the token ids and loss masks of its samples.

    The prompt of a sample is a pair of its token ids and its mask, so that no tokenizer is needed. ``tools`` has the
    tools of each sample, by index. A conversation that is tokenized with other tools consists of :data:`WRONG` tokens.
    Without a mask, all tokens of a response are trained (ray/rollout.py, in early revisions ray/buffer.py,
    _convert_samples_to_train_data).
    """
    for number, described in tools.items():
        samples[number].metadata = {"tools": described}
    known = {id(sample.prompt): tools.get(number) for number, sample in enumerate(samples)}

    def get_loss_mask(messages: tuple[list[int], list[int]], **options: Any) -> tuple[list[int], list[int]]:  # noqa: ANN401
        tokens, mask = messages
        return (tokens if options.get("tools") == known[id(messages)] else [WRONG] * len(tokens)), mask

    generator.get_loss_mask = get_loss_mask
    buffer = bare_instance(_Buffer, samples=[[sample] for sample in samples])
    module_globals = {
        "TOKENIZER": object(),
        "PROCESSOR": object(),
        "MASK_GENERATOR": generator,
        "MultiTurnLossMaskGenerator": lambda *_about, **_options: generator,
        "SAMPLE_PRINTED": True,
    }
    with replaced_globals(generate.__globals__, **module_globals):
        results = [sample[0] for sample in generate(args, 0, buffer)]
    own = [[1] * one.response_length if one.loss_mask is None else list(one.loss_mask) for one in results]
    masks = [torch.tensor([0] * (len(one.tokens) - len(mask)) + mask) for one, mask in zip(results, own, strict=True)]
    return {"tokens": [torch.tensor(sample.tokens) for sample in results], "masks": masks}


class _Buffer:
    """A fake data source that returns all samples at once."""

    samples: list[list[Any]]

    def get_samples(self, _count: int) -> list[list[Any]]:
        """All samples."""
        return self.samples
