"""TRL's distillation with gradient accumulation: the loss of one optimizer step over its micro-batches."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import EachCut, Object, Table
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, IfSet, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import trains_whole_completions
from rl_sentinel.adapters.trl.distillation import GKD, GKD_EXPERIMENTAL, LogitsModel
from rl_sentinel.adapters.trl.distillation_codecs import (
    PROMPT_WIDTH,
    SampledSequence,
    SampledTokens,
    every_completion_trains,
)
from rl_sentinel.adapters.trl.liger import forwarded
from rl_sentinel.adapters.trl.model_wrapper import REACH, SHARES, WRAPPED, ModelWrapper, unwrapped
from rl_sentinel.adapters.trl.preference_trainers import batch_samples, make_pair_trainer
from rl_sentinel.adapters.trl.preferences import trainer_path
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.rollout_batch import FILL
from rl_sentinel.adapters.trl.tiny_trainer import END
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Form, Sizes

#: A completion of the data set, which the student replaces with a sampled completion.
ANSWER = [FILL, FILL, END]

#: A conversation of the data set, for the constructor.
ROW = {"messages": [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2 w3"}]}

_PRODUCER = "transformers, Trainer.get_batch_samples: labels are counted over all micro-batches of an optimizer step"

_ACCUMULATED = "gradient_accumulation_steps above 1"

_MEAN = claims(
    "gkd_trainer.py, reduction 'batchmean': divided by the tokens whose label is not -100; transformers, "
    "Trainer.training_step: micro-batches count as one large batch",
    aggregation="token-mean",
    algorithm="generalized jsd",
    denominator="given",
)


@dataclass(frozen=True, slots=True)
class StepLogits(SampledSequence):
    """Logits of sequences without extra padding: a micro-batch is as wide as its longest sequence."""

    shift: int = 1

    @property
    def axes(self) -> frozenset[Any]:
        """An empty set: the layout adds no padding."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class StepTokens(SampledTokens):
    """Tokens of sequences without extra padding."""

    @property
    def axes(self) -> frozenset[Any]:
        """An empty set: the layout adds no padding."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class SequenceMask(ResponseMask):
    """The attention mask: 1 at the tokens of the prompt and the completion."""

    form: Form = field(default_factory=lambda: StepTokens(prompt=1, response=1, padding=0))

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows, the width, and the lengths of the completions."""
        return Sizes(length=value.sum(1) - PROMPT_WIDTH).merge(self.form.sizes(value))


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the optimizer step of a trainer whose loss gets the total number of tokens in that step."""
    path = _counting(target)
    if path:
        step = path.replace(".compute_loss", ".training_step")
        yield from bindable(
            target,
            _steps(path, "accumulated", {"mixture": 0.5}),
            _steps(step, "accumulated, sampled completions", {"mixture": 0.5, "lmbda": 1.0}),
            replace(_steps(path, "data-parallel", {"mixture": 0.5, **WRAPPED}), claims=SHARES, reach=REACH),
        )


def fused(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the step of :func:`boundaries` with Liger's loss, in releases that support Liger."""
    path = _counting(target)
    if path and "LigerFusedLinear" in inspect.getsource(target.find(path.rpartition(".")[0])):
        settings = {"mixture": 0.25, "use_liger_kernel": True}
        yield from bindable(
            target,
            _steps(path, "accumulated, Liger", settings),
            replace(
                _steps(path, "data-parallel, Liger", {**settings, **WRAPPED}),
                claims=SHARES,
                reach=f"use_liger_kernel=True, {REACH}",
            ),
        )


def _counting(target: Target) -> str:
    """The path of the loss, if it gets the number of tokens in the optimizer step; else an empty string."""
    trainer = trainer_path(target, GKD, GKD_EXPERIMENTAL)
    path = f"{trainer}.compute_loss"
    takes = (
        target.has(path)
        and not target.fails(trainer)
        and "num_items_in_batch" in inspect.signature(target.find(path)).parameters
    )
    return path if takes else ""


def _steps(path: str, name: str, settings: Settings) -> Boundary:
    logits = StepLogits()
    inputs: dict[str, Codec] = {
        key: Column("mask", StepTokens(prompt=prompt, response=response, padding=padding), torch.int64)
        for key, prompt, response, padding in (
            ("input_ids", 2, 1, 0),
            ("labels", -100, 1, -100),
        )
    }
    inputs["attention_mask"] = SequenceMask()
    part = Object(
        Part,
        {"student": Column("logits", logits), "teacher": Column("ref_logits", logits), "inputs": Table(inputs)},
        at={"student": "student.logits", "teacher": "teacher.logits"},
    )
    fields = {name: name for name in settings if name not in {"mixture", "wrapped"}}
    built: dict[str, Codec] = {
        "trainer": Constant(Function(path.rpartition(".")[0])),
        "beta": Knob("mixture"),
        **{name: IfSet(name) for name in fields},
    }
    at = {"trainer": "__class__", "beta": "args.beta", **{name: f"args.{name}" for name in fields}}
    return one_call(
        path=path,
        stage="aggregate",
        call=accumulate,
        name="loss",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": Object(make_student, built, at=at, shared=True),
            "parts": EachCut(part, "micro_batches"),
            "count": MICRO_BATCHES,
            **({"wrapped": Knob("wrapped")} if "wrapped" in settings else {}),
        },
        produced_by={"parts": _PRODUCER},
        outputs={"loss": Output("", "nats", "loss", at=Use("loss"))},
        settings={name: settings},
        claims=_MEAN,
        reach="lmbda above 0"
        if "lmbda" in fields
        else ", ".join([_ACCUMULATED, *(f"{n}={settings[n]}" for n in fields)]),
        requires=(every_row_trains, no_empty_response, trains_whole_completions),
        domain=every_completion_trains,
    )


class Part:
    """A micro-batch, and fake models that return its logits. On request, the student samples the completions."""

    def __init__(self, student: Tensor, teacher: Tensor, inputs: Mapping[str, Tensor]) -> None:
        """Store the collated tokens, and build models that return ``[B, S, V]`` logits."""
        self.student, self.teacher = TrainedModel(student), TrainedModel(teacher)
        self.student.sequences = ended(inputs["input_ids"], inputs["attention_mask"])
        self.inputs = {
            **inputs,
            "prompts": inputs["input_ids"][:, :PROMPT_WIDTH],
            "prompt_attention_mask": inputs["attention_mask"][:, :PROMPT_WIDTH],
        }

    def with_answers(self) -> dict[str, Tensor]:
        """The prompts with fixed completions of the data set, which the sampled completions replace."""
        prompts, mask = self.inputs["prompts"], self.inputs["prompt_attention_mask"]
        answers = torch.tensor(ANSWER).expand(len(prompts), -1)
        return {
            **self.inputs,
            "input_ids": torch.cat([prompts, answers], 1),
            "attention_mask": torch.cat([mask, torch.ones_like(answers)], 1),
            "labels": torch.cat([torch.full_like(prompts, -100), answers], 1),
        }


def ended(ids: Tensor, attention: Tensor) -> Tensor:
    """Sampled sequences: each completion ends with the end token, and contains no other end token."""
    last = torch.arange(ids.shape[1]) == attention.sum(1, keepdim=True) - 1
    inside = torch.where(attention.bool() & (ids == END), FILL, ids)
    return torch.where(last, END, inside)


class TrainedModel(LogitsModel):
    """A fake model that a training step can put into training mode."""

    training = True
    is_gradient_checkpointing = False
    sequences: Tensor

    def generate(self, **_options: object) -> SimpleNamespace:
        """The sampled sequences."""
        return SimpleNamespace(sequences=self.sequences)

    def train(self) -> None:
        """Do nothing."""

    def get_decoder(self) -> Callable[..., Any]:
        """The model without its head."""
        return self.base_model

    def base_model(self, **inputs: Tensor) -> SimpleNamespace:
        """The hidden states, which equal the logits."""
        return SimpleNamespace(last_hidden_state=type(self).forward(self, **inputs).logits)

    def get_output_embeddings(self) -> SimpleNamespace:
        """The output layer, whose weight is the identity."""
        return SimpleNamespace(weight=torch.eye(self.logits.shape[-1], dtype=self.logits.dtype), bias=None)


class StudentOfParts:
    """The fake student of a trainer that samples for all micro-batches before it counts their tokens."""

    is_gradient_checkpointing = False

    def __init__(self, parts: list[Part]) -> None:
        """Store the micro-batches."""
        self.parts = iter(parts)

    def generate(self, **options: object) -> SimpleNamespace:
        """The sampled sequences of the next micro-batch."""
        return next(self.parts).student.generate(**options)


def make_student(trainer: Callable[..., Any], beta: float, **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A trainer with a teacher, built by its constructor; by default it trains on completions of the data set."""
    return make_pair_trainer(trainer, rows=[ROW] * 2, beta=beta, **{"lmbda": 0.0, **settings})


def accumulate(
    entry: Any,  # noqa: ANN401, ARG001 - a method of the target
    trainer: Any,  # noqa: ANN401 - a trainer
    parts: list[Part],
    count: int,
    *,
    wrapped: bool = False,
) -> Tensor:
    """Run one optimizer step, and return the sum of the losses passed to ``backward`` over its micro-batches.

    ``entry`` is not called here: it names the audited method, which each training step calls. With ``wrapped``, a loss
    counts only if the student's wrapper shares its gradient.
    """
    ready = copy(trainer)
    ready.args = copy(trainer.args)
    ready.accelerator = RankAccelerator(trainer.accelerator, 0, 1)
    ready.accelerator.unwrap_model = unwrapped
    if not wrapped:
        ready._forward_redirection = forwarded  # noqa: SLF001 - there is no wrapper
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = count
    if samples := ready.args.lmbda > 0:
        ready.generation_config = copy(ready.generation_config)
        ready.generation_config.eos_token_id = END  # normally from the model's generation configuration
    ready.model_wrapped = StudentOfParts(parts)
    losses: list[Tensor] = []
    batches, tokens = batch_samples(ready, [part.with_answers() if samples else part.inputs for part in parts])
    for part, batch in zip(parts, batches, strict=True):
        ready.teacher_model = part.teacher
        student = ModelWrapper(part.student)
        ready.training_step(student if wrapped else part.student, dict(batch), tokens)
        losses.append(student.shared(ready.accelerator.losses.pop()) if wrapped else ready.accelerator.losses.pop())
    return torch.stack(losses).sum()
