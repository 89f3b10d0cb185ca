"""TRL's supervised metrics under prompt learning: virtual tokens before a prompt do not count."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.supervised import LOGGED, SFT, step_boundary, trainers_of_ranks
from rl_sentinel.adapters.trl.supervised_trainer import train_ranks
from rl_sentinel.adapters.trl.token_model import PROMPT
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

PATH = f"{SFT}.compute_loss"

#: Kinds of prompt learning, and whether the model returns logits for its virtual tokens.
KINDS = {"prompt tuning": True, "prefix tuning": False}

#: In the source of releases whose entropy is meant to include virtual tokens.
COUNTS = "virtual_attention_mask"

#: Number of virtual tokens.
COUNT = 2

_NOT_INPUT = (
    "sft_trainer.py, compute_loss: virtual tokens are skipped, since they do not correspond to actual input tokens; "
    "peft, PeftModelForCausalLM.forward: it puts them before the input, with a label that is ignored"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics logged with each kind of prompt learning.

    There are no boundaries in releases that do not compute these metrics from logits.
    """
    if not target.has(PATH) or target.fails(PATH):
        return
    module = inspect.getsource(inspect.getmodule(target.find(SFT)))  # type: ignore[arg-type]  # a class has a module
    if "num_virtual_tokens" in module and "per_token_entropy" in module:
        known = [kind for kind, given in KINDS.items() if given or "PREFIX_TUNING" in module]
        yield from bindable(target, *(_metrics(module, kind) for kind in known))


def train_with_virtual_tokens(
    entry: Callable[..., Any], trainers: list[Any], count: int, *, given: bool
) -> dict[str, Any]:
    """Run an optimizer step of models with ``count`` virtual tokens; ``given`` says whether the tokens have logits."""
    for trainer in trainers:
        trainer.num_virtual_tokens = count
        model = trainer.model
        model.active_adapter = "default"
        model.peft_config = {"default": SimpleNamespace(peft_type="PROMPT_TUNING" if given else "PREFIX_TUNING")}
        if given and count:
            model.forward = partial(_prepended, model.forward, count)
    with _peft_types(inspect.unwrap(entry).__globals__):
        return train_ranks(entry, trainers)


def _prepended(
    forward: Callable[..., Any],
    count: int,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    labels: Tensor | None = None,
    **more: Any,  # noqa: ANN401 - options of the model
) -> Any:  # noqa: ANN401 - the model's output
    """The output of the model for the virtual tokens followed by the input."""
    columns = {"input_ids": (input_ids, PROMPT), "attention_mask": (attention_mask, 1), "labels": (labels, -100)}
    whole = {
        name: torch.cat([column.new_full((len(column), count), value), column], 1)
        for name, (column, value) in columns.items()
        if column is not None
    }
    return forward(**whole, **more)


@contextmanager
def _peft_types(module: dict[str, Any]) -> Iterator[None]:
    """Define ``PeftType`` in the trainer's module, which imports it only if peft is installed."""
    original = module.get("PeftType")
    module["PeftType"] = SimpleNamespace(PREFIX_TUNING="PREFIX_TUNING", PROMPT_TUNING="PROMPT_TUNING")
    try:
        yield
    finally:
        if original is None:
            del module["PeftType"]
        else:
            module["PeftType"] = original


def _metrics(module: str, kind: str) -> Boundary:
    place = Use("trained")["trainer"].attribute("_metrics")
    place = place["train"] if '"train": defaultdict' in module else place
    counted = {"entropy"} if COUNTS in module else set()
    logged = [n for n in LOGGED if f'["{n}"]' in module and n not in counted]
    outputs = {n: Output("", "", at=place[n], form=Logged()) for n in logged}
    model_outputs = {"logits": Column("logits", NoPadding()), "tokens": Column("token", NoPadding())}
    trainers = trainers_of_ranks({}, model_outputs, masked=True, alone=True)
    name = f"logged of logits, {kind}"
    made = step_boundary(
        PATH,
        name,
        train_with_virtual_tokens,
        trainers,
        outputs,
        claims(_NOT_INPUT, inert={"virtual_tokens": (0, COUNT)}),
        settings={"virtual_tokens": COUNT},
        masked=True,
    )
    (step,) = made.steps
    more = {"count": Knob("virtual_tokens"), "given": Constant(KINDS[kind])}
    return replace(
        made,
        steps=(replace(step, arguments={**step.arguments, **more}),),
        reach=f"a peft_config of {kind} with num_virtual_tokens",
    )
