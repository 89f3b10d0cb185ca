"""TRL's distillation on a buffered generation batch: the loss of one optimizer step."""

import importlib
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import cache, partial
from inspect import getsource
from itertools import islice
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import enough_words, equal_micro_batches, every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import liger
from rl_sentinel.adapters.trl.arguments import trains_whole_completions
from rl_sentinel.adapters.trl.buffered_rollouts import left_padded
from rl_sentinel.adapters.trl.distillation import RELATIVES
from rl_sentinel.adapters.trl.distillation_codecs import every_completion_trains
from rl_sentinel.adapters.trl.distillation_steps import ANSWER, ROW, TrainedModel
from rl_sentinel.adapters.trl.inline_prompts import text_of
from rl_sentinel.adapters.trl.logit_model import of_shared_weights
from rl_sentinel.adapters.trl.model_wrapper import REACH, SHARES, WRAPPED, ModelWrapper, unwrapped
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.preference_trainers import batch_samples, make_pair_trainer
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.rollout_batch import FILL
from rl_sentinel.adapters.trl.tiny_trainer import END, PADDING, make_byte_tokenizer
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

#: Fields to set if a configuration has them: divergence over the whole vocabulary, completions not truncated.
_FIELDS = {"distillation_objective": "jsd", "loss_top_k": 0, "max_completion_length": 512, "lmbda": 0.0}

_BATCH = (
    "gold_trainer.py, get_train_dataloader: the loader yields each generation batch gradient_accumulation_steps times, "
    "and _fill_buffer cuts the first of them into that number of slices"
)

_ACCUMULATED = "gradient_accumulation_steps above 1"

_MEAN = claims(
    "gold_trainer.py, generalized_jsd_loss: normalized by the global number of valid tokens, so that the loss is right "
    "under gradient accumulation",
    aggregation="token-mean",
    algorithm="generalized jsd",
    denominator="given",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the optimizer step of each trainer.

    The completions come from the data set, or the student samples them.
    """
    for path in RELATIVES:
        if not target.has(f"{path}._fill_buffer") or target.fails(path):
            continue
        known = fields_of(target, path)
        fields = {name: value for name, value in _FIELDS.items() if name in known}
        modes = {"completions of the data set": False} if "lmbda" in known else {}
        modes["sampled completions"] = True
        yield from bindable(target, *(_step(path, name, fields, sampled=sampled) for name, sampled in modes.items()))
        sampled = "lmbda" not in known
        yield from bindable(target, _wrapped(_step(path, "data-parallel", fields, sampled=sampled, wraps=True)))
        if "LigerFusedLinear" in getsource(target.find(path)) and liger.installed():
            fused = {**fields, "use_liger_kernel": True}
            yield from bindable(
                target,
                _step(path, "Liger", fused, sampled=sampled),
                _wrapped(_step(path, "data-parallel, Liger", fused, sampled=sampled, wraps=True)),
            )


def _wrapped(step: Boundary) -> Boundary:
    return replace(step, claims=SHARES, reach=REACH)


class Model(TrainedModel):
    """A fake model: it returns the known logits of each row, at the positions that predict its completion."""

    def forward(self, **inputs: Any) -> Any:  # noqa: ANN401 - as a model of transformers
        """Logits ``[B, S, V]`` for ids ``[B, S]``."""
        rows = []
        for ids in inputs["input_ids"]:
            end, label = _prompt_end(ids.tolist())
            own = self.logits[label][: len(ids) - end]
            around = [own.new_zeros(n, own.shape[-1]) for n in (end - 1, len(ids) - end - len(own) + 1)]
            rows.append(torch.cat([around[0], own, around[1]]))
        logits = torch.stack(rows)
        return SimpleNamespace(logits=of_shared_weights(logits, logits))


class Sampler:
    """A fake ``vllm_generation`` that returns a known completion for each prompt."""

    def __init__(self, completions: list[list[int]]) -> None:
        """Store the completions."""
        self.completions = completions

    def generate(self, prompts: list[list[int]], **_options: object) -> tuple[Any, ...]:
        """The completions of these prompts, without log-probs."""
        return prompts, [self.completions[_prompt_end(list(ids))[1]] for ids in prompts], None, None


def _prompt_end(ids: list[int]) -> tuple[int, int]:
    """The length of the prompt, and the row that the last token of the prompt encodes."""
    labels = _labels()
    end = max(place for place, token in enumerate(ids) if token in labels) + 1
    return end, labels[ids[end - 1]]


@cache
def _labels() -> dict[int, int]:
    return {_ids_of(row)[-1]: row for row in range(ROWS)}


@cache
def _ids_of(row: int) -> list[int]:
    ids: list[int] = make_byte_tokenizer()(text_of(row), add_special_tokens=False)["input_ids"]
    return ids


#: The number of rows whose prompts have distinct last tokens.
ROWS = 20


def few_rows(inputs: Inputs) -> str:
    """The reason to skip a batch with more than :data:`ROWS` prompts; empty otherwise.

    Each prompt needs a distinct word.
    """
    return enough_words(inputs.batch.rows, ROWS)


def make_student(trainer: Callable[..., Any], beta: float, **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """A trainer with a teacher, built by its constructor; the teacher uses the student's tokenizer."""
    module = vars(importlib.import_module(trainer.__module__))
    same_tokenizer = SimpleNamespace(from_pretrained=lambda *_names, **_options: make_byte_tokenizer())
    with replaced_globals(module, AutoTokenizer=same_tokenizer):
        return make_pair_trainer(trainer, rows=[ROW] * 2, tokenizer=make_byte_tokenizer, beta=beta, **settings)


def train_on_buffer(  # noqa: PLR0913 - the parts of a step
    entry: Callable[..., Any],  # noqa: ARG001 - names the target's method that each training step calls
    trainer: Any,  # noqa: ANN401 - a trainer
    student: Tensor,
    teacher: Tensor,
    lengths: Tensor,
    count: int,
    *,
    sampled: bool,
    wrapped: bool = False,
) -> Tensor:
    """Train on each slice of a generation batch, and return the sum of the losses passed to ``backward``.

    With ``wrapped``, a loss counts only if the student's wrapper shares its gradient.
    """
    completions = [[FILL] * (n - 1) + [END] for n in lengths.sum(1).tolist()]
    ready = copy(trainer)
    ready.args, ready.lmbda = copy(trainer.args), 1.0 if sampled else 0.0
    ready.args.gradient_accumulation_steps = ready.current_gradient_accumulation_steps = count
    ready.args.generation_batch_size = len(completions)  # __post_init__ would set it: the rows of all micro-batches
    ready._train_batch_size = len(completions) // count  # noqa: SLF001 - set by Trainer.train
    ready.use_vllm, ready.vllm_generation, ready.vllm_sync_frequency = True, Sampler(completions), 1
    ready._last_vllm_sync_step = ready.state.global_step  # noqa: SLF001 - the engine has the newest weights
    ready.train_dataset = list(range(len(completions)))
    ready.data_collator = partial(collated, [ANSWER] * len(completions) if sampled else completions)
    batches, tokens = batch_samples(ready, list(islice(ready.get_train_dataloader(), count)))
    ready.model, ready.teacher_model = Model(student), Model(teacher)
    ready.accelerator = RankAccelerator(trainer.accelerator, 0, 1)
    ready.accelerator.unwrap_model = unwrapped
    losses = []
    for batch in batches:
        model = ModelWrapper(ready.model)
        ready.training_step(model if wrapped else ready.model, batch, tokens)
        loss = ready.accelerator.losses.pop()
        losses.append(model.shared(loss) if wrapped else loss)
    return torch.stack(losses).sum()


def collated(completions: list[list[int]], rows: list[int]) -> dict[str, Tensor]:
    """The rows of a batch in the form that the trainers' collators return: prompts padded left, completions right."""
    prompts = [torch.tensor(_ids_of(row)) for row in rows]
    ids = left_padded(prompts), _right_padded([completions[row] for row in rows], PADDING)
    ones = (
        left_padded([torch.ones_like(p) for p in prompts]),
        _right_padded([[1] * len(completions[r]) for r in rows], 0),
    )
    labels = torch.full_like(ids[0], -100), _right_padded([completions[row] for row in rows], -100)
    names = {"input_ids": ids, "attention_mask": ones, "labels": labels}
    both = {name: torch.cat(parts, 1) for name, parts in names.items()}
    return {**both, "prompts": ids[0], "prompt_attention_mask": ones[0]}


def _right_padded(rows: list[list[int]], fill: int) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=fill)


def _step(path: str, name: str, fields: dict[str, Any], *, sampled: bool, wraps: bool = False) -> Boundary:
    entry = f"{path}.training_step"
    built: dict[str, Codec] = {
        "trainer": Constant(Function(path)),
        "beta": Knob("mixture"),
        "temperature": Knob("temperature"),
        **constants(**fields),
    }
    at = {"trainer": "__class__", **{name: f"args.{name}" for name in ("beta", "temperature", *fields)}}
    arguments: dict[str, Codec] = {
        "entry": Constant(Function(entry)),
        "trainer": Object(make_student, built, at=at, shared=True),
        "student": Column("logits", NoPadding()),
        "teacher": Column("ref_logits", NoPadding()),
        "lengths": ResponseMask(NoPadding()),
        "count": MICRO_BATCHES,
        "sampled": Constant(sampled),
    }
    if wraps:
        arguments["wrapped"] = Knob("wrapped")
    return one_call(
        path=entry,
        stage="aggregate",
        call=train_on_buffer,
        name="loss",
        arguments=arguments,
        produced_by={"student": _BATCH},
        outputs={"loss": Output("", "nats", "loss", at=Use("loss"))},
        settings={name: {"mixture": 0.5, "temperature": 1.0, **(WRAPPED if wraps else {})}},
        claims=_MEAN,
        reach=("lmbda above 0" if "lmbda" in fields else "every step") if sampled else _ACCUMULATED,
        requires=(every_row_trains, no_empty_response, trains_whole_completions, equal_micro_batches, few_rows),
        domain=every_completion_trains,
    )
