"""The new head that TRL's reward trainer adds to a model given by name: a seed determines it, and it has one output."""

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from inspect import getsource
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.preference_trainers import configuration_of, default_rows
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.reward_model import (
    LONGEST,
    REWARD,
    SCORES,
    columns_of,
    scaled_as_scorer,
    training_step,
)
from rl_sentinel.adapters.trl.tiny_trainer import make_tokenizer
from rl_sentinel.adapters.trl.token_model import make_language_model
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Source text of a release that accepts the name of a model, and of one that adds a head to this model.
BY_NAME, NEW_HEAD = "isinstance(model, str)", "AutoModelForSequenceClassification"

REACH = "a model that is given by name"

_SEED = (
    "transformers, TrainingArguments, seed: random seed that will be set at the beginning of training; "
    "reward_trainer.py, __init__: from_pretrained adds a head with random weights to the model"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the head, in releases whose constructor loads the model.

    :mod:`reward_model` reports a trainer that fails.
    """
    if not target.has(REWARD) or target.fails(REWARD):
        return
    source = getsource(target.find(REWARD).__init__)
    if BY_NAME in source and NEW_HEAD in source:
        yield from bindable(target, _head())
        names = columns_of(whole := getsource(inspect.getmodule(target.find(REWARD))))  # type: ignore[arg-type]  # a class has a module
        if names is not None and "max_length" in fields_of(target, REWARD):
            trained = training_step("model by name", SCORES, names, whole, make_named_trainer)
            yield from bindable(target, replace(trained, reach=REACH))


def make_named_trainer(trainer: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A reward trainer of a language model that is given by its folder."""
    return scaled_as_scorer(_named(trainer, 0, {"max_length": LONGEST, **settings}))


def _named(trainer: Callable[..., Any], drawn: int, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a trainer
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    with tempfile.TemporaryDirectory() as folder:
        make_language_model().save_pretrained(folder)
        args, _ = configuration_of(trainer, settings)
        torch.rand(drawn)
        return trainer(
            model=folder,
            args=args,
            train_dataset=Dataset.from_list([dict(row) for row in default_rows(trainer)]),
            processing_class=make_tokenizer(),
        )


def new_head(trainer: Callable[..., Any], seed: int, drawn: int) -> dict[str, Tensor]:
    """Draw ``drawn`` random numbers, build the trainer, and return ``sum``: the sum of the absolute head weights."""
    built = _named(trainer, drawn, {"seed": seed})
    head = next(value for name, value in built.model.named_parameters() if name.startswith("score"))
    return {"sum": head.detach().abs().sum()}


def _head() -> Boundary:
    return one_call(
        path=REWARD,
        stage="batch",
        call=new_head,
        name="head",
        arguments={"trainer": Constant(Function(REWARD)), "seed": Knob("seed"), "drawn": Knob("numbers_drawn_before")},
        remembered=True,
        produced_by={"seed": "reward_config.py, RewardConfig: a field of TrainingArguments"},
        outputs={"sum of the head's weights": Output("", "", at=Use("head")["sum"])},
        settings={"model by name": {"seed": 1, "numbers_drawn_before": 0}},
        claims=claims(_SEED, knobs={"seed": (1, 2)}, inert={"numbers_drawn_before": (0, 1)}),
        reach=REACH,
    )
