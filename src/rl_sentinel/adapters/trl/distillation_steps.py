"""TRL's distillation under gradient accumulation: training steps over the micro-batches of one optimizer step."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import EachCut, Object, Table
from rl_sentinel.adapters.kit.requirements import every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import micro_batch_count, trains_whole_completions
from rl_sentinel.adapters.trl.distillation import GKD, GKD_NOW, LogitsModel
from rl_sentinel.adapters.trl.distillation_codecs import WIDE, SampledSequence, SampledTokens, every_completion_trains
from rl_sentinel.adapters.trl.preference_trainers import make_pair_trainer
from rl_sentinel.adapters.trl.ranks import RankAccelerator
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Form, Sizes

#: A conversation of the data set, for the constructor.
ROW = {"messages": [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2 w3"}]}

_PRODUCER = "transformers, Trainer.get_batch_samples: labels are counted over all micro-batches of an optimizer step"

_MEAN = claims(
    "gkd_trainer.py, reduction 'batchmean': by the tokens whose label is not -100; transformers, "
    "Trainer.training_step: micro-batches are those of one large batch",
    aggregation="token-mean",
    algorithm="generalised jsd",
    denominator="given",
)


@dataclass(frozen=True, slots=True)
class StepLogits(SampledSequence):
    """Logits of sequences to which a layout adds no padding: a micro-batch is as wide as its longest one."""

    shift: int = 1

    @property
    def axes(self) -> frozenset[Any]:
        """No field of the layout."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class StepTokens(SampledTokens):
    """Tokens of such sequences."""

    @property
    def axes(self) -> frozenset[Any]:
        """No field of the layout."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class SequenceMask(ResponseMask):
    """1 at the tokens of prompt and completion."""

    form: Form = field(default_factory=lambda: StepTokens(prompt=1, response=1, padding=0))

    def sizes(self, value: Tensor) -> Sizes:
        """Rows, width and lengths, without the prompts."""
        return Sizes(length=value.sum(1) - WIDE).merge(self.form.sizes(value))


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The steps of a trainer whose loss is told how many tokens an optimizer step has."""
    trainer = next((p for p in (GKD, GKD_NOW) if target.has(p)), GKD)
    path = f"{trainer}.compute_loss"
    if (
        target.has(path)
        and not target.fails(trainer)
        and "num_items_in_batch" in inspect.signature(target.find(path)).parameters
    ):
        yield from bindable(target, _steps(path, trainer))


def _steps(path: str, trainer: str) -> Boundary:
    settings: Settings = {"mixture": 0.5}
    logits = StepLogits()
    inputs: dict[str, Codec] = {
        key: Column("mask", StepTokens(prompt=prompt, response=response, padding=padding), torch.int64)
        for key, prompt, response, padding in (
            ("input_ids", 4, 5, 0),
            ("labels", -100, 5, -100),
        )
    }
    inputs["attention_mask"] = SequenceMask()
    part = Object(
        part_of_step,
        {"student": Column("logits", logits), "teacher": Column("ref_logits", logits), "inputs": Table(inputs)},
        at={"student": "student.logits", "teacher": "teacher.logits"},
    )
    built: dict[str, Codec] = {"trainer": Constant(Function(trainer)), "beta": Knob("mixture")}
    step = Step(
        call=accumulate,
        name="loss",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": Object(make_student, built, at={"trainer": "__class__", "beta": "args.beta"}, shared=True),
            "parts": EachCut(part, "micro_batches"),
            "count": micro_batch_count(),
        },
        produced_by={"parts": _PRODUCER},
    )
    return Boundary(
        path=path,
        stage="aggregate",
        steps=(step,),
        outputs={"loss": Output("", "nats", "loss", at=Use("loss"))},
        settings={"accumulated": settings},
        claims=_MEAN,
        reach="gradient_accumulation_steps above 1",
        requires=(every_row_trains, no_empty_response, trains_whole_completions),
        domain=every_completion_trains,
    )


class Part:
    """A micro-batch with the models that answer it."""

    def __init__(self, student: Tensor, teacher: Tensor, inputs: Mapping[str, Tensor]) -> None:
        """Take ``[B, S, V]`` logits, and the collated tokens."""
        self.student, self.teacher = TrainedModel(student), TrainedModel(teacher)
        self.inputs = {
            **inputs,
            "prompts": inputs["input_ids"][:, :2],
            "prompt_attention_mask": inputs["attention_mask"][:, :2],
        }


class TrainedModel(LogitsModel):
    """The same where a step puts it into training first."""

    training = True

    def train(self) -> None:
        """Do nothing."""


def part_of_step(student: Tensor, teacher: Tensor, inputs: Mapping[str, Tensor]) -> Part:
    """A micro-batch with the models that answer it."""
    return Part(student, teacher, inputs)


def make_student(trainer: Callable[..., Any], beta: float) -> Any:  # noqa: ANN401 - a trainer
    """A trainer with a teacher, made by its own constructor; completions are those of the data set."""
    return make_pair_trainer(trainer, rows=[ROW] * 2, beta=beta, lmbda=0.0)


def accumulate(entry: Any, trainer: Any, parts: list[Part], count: int) -> Tensor:  # noqa: ANN401, ARG001 - a method of the target, a trainer
    """The sum of what ``backward`` is called with, over the micro-batches of an optimizer step.

    ``entry`` is the method of the target that each step enters.
    """
    ready = copy(trainer)
    ready.args = copy(trainer.args)
    ready.accelerator = RankAccelerator(trainer.accelerator, 0, 1)
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = count
    sample = ready.get_batch_samples
    device = {"device": torch.device("cpu")} if "device" in inspect.signature(sample).parameters else {}
    batches, tokens = sample(iter([part.inputs for part in parts]), len(parts), **device)
    for part, batch in zip(parts, batches, strict=True):
        ready.teacher_model = part.teacher
        ready.training_step(part.student, dict(batch), tokens)
    return torch.stack(ready.accelerator.losses).sum()
