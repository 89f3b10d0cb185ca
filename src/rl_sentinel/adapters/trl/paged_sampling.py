"""TRL's rollouts with the batched generation of transformers: prompts and completions must belong to one row."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import (
    group_sizes,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO, Prompts
from rl_sentinel.adapters.trl.dataset_preparation import ids_of
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.release import NAME, config_fields, source_of
from rl_sentinel.adapters.trl.rollout_batch import FILL, id_tokens
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_score
from rl_sentinel.adapters.trl.scoring import several_generations
from rl_sentinel.adapters.trl.tiny_trainer import END, make_trainer
from rl_sentinel.adapters.trl.token_differences import count_differences
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: The names of the option over time; the first one that a release has is set.
OPTIONS = ("use_transformers_continuous_batching", "use_transformers_paged")

#: The method of transformers' models that the option calls, and source text of one that returns the inputs' order.
BATCHED, IN_ORDER = "generate_batch", "reordered"

#: What is checked -> the output that counts it.
CHECKS = {"prompts": "number of wrong tokens in the prompt", "completions": "completion of another prompt"}

_AS_THEY_FINISH = ", with a transformers whose generate_batch returns requests as they finish"

_SAYS = (
    "transformers, generate_batch: takes a list of prompts of any lengths, without padding, and returns a dict from "
    "request to result, in early releases in the order in which requests finish; grpo_config.py, "
    "use_transformers_paged and use_transformers_continuous_batching: another implementation of the generation"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the rows that a rollout makes, of GRPO and of RLOO, where the installed transformers can batch."""
    for owner, kind in ((GRPO, "grpo"), (RLOO, "rloo")):
        path = f"{owner}.{NAME}"
        if not target.has(path) or target.fails(owner) or "rewards_per_func" not in source_of(target.find(path)):
            continue
        option = next((name for name in OPTIONS if name in config_fields(target, kind)), "")
        if option and _method_of_models() is not None:
            yield from bindable(target, *(_rows(path, kind, option, what) for what in CHECKS))


def paged_rows(  # noqa: PLR0913 - a method of the target, a trainer, and a rollout
    entry: Callable[..., Any],
    base: Any,  # noqa: ANN401 - a trainer
    option: str,
    prompts: list[dict[str, str]],
    rewards: list[float],
    lengths: Tensor,
    generations: int,
) -> dict[str, list[float]]:
    """Sample and score a rollout with the batched generation.

    The first rows have the longest completions. Returns, per row of the batch, ``advantages``: its advantage;
    ``prompts``: the number of wrong tokens in the prompt that the masks show; and ``completions``: 1 if the completion
    answers another prompt.
    """
    counts = [int(count) for count in lengths.sum(1)]
    rows = len(counts)
    made = [[*id_tokens(row), *[FILL] * (count - 1 + rows - row), END] for row, count in enumerate(counts)]
    shape = (len(made), max(map(len, made)))
    ready = ready_to_score(base, generations, completions=made, rewards=rewards, old_logprobs=torch.zeros(shape))
    vars(ready).pop("_generate_single_turn", None)
    setattr(ready, option, True)
    ready.continuous_batching_config = None
    ready.model.generate_batch = partial(batched, made)
    batch = entry(ready, prompts)
    texts = [row["prompt"] for row in prompts]
    found: dict[str, list[float]] = {"advantages": batch["advantages"].tolist(), "prompts": [], "completions": []}
    for row, text in enumerate(texts):
        shown = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
        found["prompts"].append(float(count_differences(shown.tolist(), ids_of(ready.processing_class, text))))
        sample = batch["completion_ids"][row].tolist()[: len(id_tokens(0))]
        answered = next((n for n in range(len(made)) if id_tokens(n) == sample), None)
        found["completions"].append(float(answered is None or texts[answered] != text))
    return found


def batched(completions: Sequence[list[int]], inputs: Sequence[Sequence[int]], **_options: object) -> dict[str, Any]:
    """A fake ``generate_batch``: the results of all requests, in the order of the installed transformers."""
    order = list(range(len(inputs)))
    if not in_order():
        order.sort(key=lambda row: len(completions[row]))  # a step makes one token of each request
    return {f"req_{row}": SimpleNamespace(generated_tokens=list(completions[row])) for row in order}


def in_order() -> bool:
    """Whether the installed transformers returns the results in the order of the requests."""
    method = _method_of_models()
    return method is not None and IN_ORDER in inspect.getsource(inspect.unwrap(method))


def _method_of_models() -> Callable[..., Any] | None:
    """The method of the installed transformers; None if it has none."""
    from transformers import LlamaForCausalLM  # noqa: PLC0415 - in the target's overlay

    method: Callable[..., Any] | None = getattr(LlamaForCausalLM, BATCHED, None)
    return method


def _rows(path: str, kind: str, option: str, what: str) -> Boundary:
    form, found = PerRow("list"), Use("found")
    return one_call(
        path=path,
        stage="batch",
        call=paged_rows,
        name="found",
        arguments={
            "entry": Constant(Function(path)),
            "base": Object(make_trainer, constants(kind=kind, num_iterations=2), shared=True),
            "option": Constant(option),
            "prompts": Prompts(varied=True),
            "rewards": Column("reward", PerRow("list")),
            "lengths": ResponseMask(NoPadding()),
            "generations": Derived(lambda inputs: max(group_sizes(inputs))),
        },
        produced_by={"prompts": "grpo_trainer.py, _get_train_sampler: num_generations consecutive rows per prompt"},
        outputs={
            "advantage": Output("B", "reward", at=found["advantages"], form=form),
            CHECKS[what]: Output("B", "count", "columns_of_others", at=found[what], form=form),
        },
        settings={f"batched generation, {what}": {}},
        claims=claims(_SAYS),
        reach=f"{option}=True" + ("" if what == "prompts" or in_order() else _AS_THEY_FINISH),
        requires=(no_empty_response, prompts_are_contiguous, groups_are_equal, several_generations),
    )
