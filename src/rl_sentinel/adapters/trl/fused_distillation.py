"""TRL's on-policy distillation with a fused divergence: the loss over micro-batches, and the logged entropy."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Earlier, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import DISTILLATION, CompletionMask, completions, itself, trainer
from rl_sentinel.adapters.trl.distillation import BETAS
from rl_sentinel.adapters.trl.liger import forwarded
from rl_sentinel.adapters.trl.logit_model import Head, in_chunks
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.release import NAME, source_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.rollout_batch import unpacked_names
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD, ready_to_train
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

MODULE = DISTILLATION.rpartition(".")[0]

_LOSS = claims(
    "distillation_trainer.py, _chunked_divergence_loss: generalized JSD; sum / num_items_in_batch, the valid tokens of "
    "the global batch",
    algorithm="generalized jsd",
    aggregation="token-mean",
    denominator="given",
)
_LOGS = claims(
    "distillation_trainer.py, compute_loss: the mean per-token student entropy, in nats",
    output_algorithms={"entropy": "entropy of trained tokens"},
)
_PRODUCER = (
    "distillation_trainer.py, _generate_and_score_completions: masks of int64, num_items_in_batch counted over the "
    "generation batch of all processes; _prepare_inputs splits it into micro-batches"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss at each mixture weight and temperature, and the logged entropy."""
    path = f"{DISTILLATION}.compute_loss"
    if not target.has(path) or not target.has(f"{MODULE}._chunked_divergence_loss"):
        return
    if why := target.fails(DISTILLATION):
        yield Unbound(path, "aggregate", why)
        return
    rollout = f"{DISTILLATION}.{NAME}"
    counts = target.has(rollout) and '"num_items_in_batch"' in source_of(target.find(rollout))
    steps = (_count(rollout),) if counts else ()
    yield from bindable(target, *(_loss(path, name, steps) for name in BETAS), _entropy(path))


_ALL_TRAINED = Computed(
    frozenset({"mask"}),
    lambda inputs: inputs.mini_batch.mask.sum(),
    "which tokens are trained cannot be read from a count",
)


class Model:
    """A fake model: its head, applied to its hidden states, gives the logits of a batch."""

    training = True

    def __init__(self, logits: Tensor) -> None:
        """Store ``[B, T, V]`` logits of the completion's tokens."""
        self.logits, self.head = logits, Head(logits)
        self.config = SimpleNamespace(get_text_config=SimpleNamespace)

    def eval(self) -> None:
        """Do nothing."""

    def get_output_embeddings(self) -> Head:
        """The head."""
        return self.head

    def base_model(self, input_ids: Tensor, **_inputs: object) -> Any:  # noqa: ANN401 - as a model of transformers
        """Hidden states ``[B, P + T, H]``; the last position predicts no token."""
        hidden = self.head.hidden
        before = hidden.new_zeros(len(hidden), input_ids.shape[1] - hidden.shape[1] - 1, hidden.shape[2])
        return SimpleNamespace(last_hidden_state=torch.cat([before, hidden, hidden.new_zeros(hidden[:, :1].shape)], 1))


def make_student_trainer(kind: type, beta: float, temperature: float, teacher: Model) -> Any:  # noqa: ANN401 - a trainer
    """A bare trainer with the attributes that its loss reads."""
    return bare_instance(
        kind,
        beta=beta,
        temperature=temperature,
        teacher_model=teacher,
        model=SimpleNamespace(training=True),
        model_kwarg_keys=frozenset(),
        args=SimpleNamespace(report_to=[]),
        accelerator=RankAccelerator(SimpleNamespace(unwrap_model=itself), 0, 1),
        state=SimpleNamespace(global_step=0),
        _is_vlm=False,
        _metrics={mode: defaultdict(list) for mode in ("train", "eval")},
        _forward_redirection=forwarded,
    )


def distil_in_chunks(entry: Callable[..., Any], trainer: Any, model: Model, inputs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a trainer
    """Compute the loss of a micro-batch, with fused heads in small chunks.

    Returns ``loss``, and ``trainer`` with its logs.
    """
    with in_chunks():
        return {"loss": entry(trainer, model, inputs), "trainer": trainer}


def count_tokens(
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    completion_mask: Tensor,
    tool_mask: Tensor,
) -> Any:  # noqa: ANN401 - a number, or a tensor of one
    """Let the trainer sample these completions; return the number of trained tokens that it counts."""
    lengths = completion_mask.sum(1).clamp(min=1).tolist()
    sampled = {
        "prompt": [[FIRST_WORD] for _ in lengths],
        "completion": [[FIRST_WORD] * n for n in lengths],
        "tool_mask": [own[:n] for own, n in zip(tool_mask.tolist(), lengths, strict=True)],
        "tool_images": [],
    }
    names = unpacked_names(entry, "_generate")
    returned = tuple(next((v for key, v in sampled.items() if name.startswith(key)), None) for name in names)
    ready = ready_to_train(trainer, 1)
    ready._generate = lambda _prompts: returned  # noqa: SLF001 - where it samples
    return entry(ready, [{"prompt": "w1"} for _ in lengths])["num_items_in_batch"]


def _count(path: str) -> Step:
    return Step(
        call=count_tokens,
        name="count",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": trainer("distillation", {}),
            "completion_mask": CompletionMask(NoPadding()),
            "tool_mask": Column("mask", NoPadding(), dtype=torch.int64),
        },
        produced_by={"tool_mask": "distillation_trainer.py, _generate: 0 at the tokens of a tool"},
    )


def _step(path: str, *, alone: bool, counted: bool = False) -> Step:
    student = Object(
        make_student_trainer,
        {
            "kind": Constant(Function(DISTILLATION)),
            "beta": Knob("mixture"),
            "temperature": Knob("temperature"),
            "teacher": Object(Model, {"logits": Column("ref_logits")}),
        },
        at={"kind": "__class__", "teacher": "teacher_model"},
    )
    inputs: dict[str, Codec] = {
        **completions(tools=True),
        "num_items_in_batch": Earlier(Use("count")) if counted else _ALL_TRAINED,
    }
    return Step(
        call=distil_in_chunks,
        name="distilled",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": student,
            "model": Object(Model, {"logits": Column("logits")}),
            "inputs": Table(inputs),
        },
        each=() if alone else ("micro_batch",),
        produced_by={"inputs": _PRODUCER},
    )


def _loss(path: str, name: str, before: tuple[Step, ...] = ()) -> Boundary:
    return Boundary(
        path=path,
        stage="aggregate",
        steps=(*before, _step(path, alone=False, counted=bool(before))),
        unused=frozenset({"token", "prompt_length"}),
        outputs={"loss": Output("", "nats", "loss", at=Use("distilled")["loss"], join="sum")},
        settings={name: BETAS[name]},
        claims=_LOSS,
        reach=", ".join(f"{k}={v}" for k, v in BETAS[name].items()),
        requires=(equal_micro_batches, no_empty_response, has_trained_token),
    )


def _entropy(path: str) -> Boundary:
    place = Use("distilled")["trainer"].attribute("_metrics")["train"]["entropy"]
    return replace(
        _loss(path, "default"),
        stage="policy-loss",
        steps=(_step(path, alone=True),),
        outputs={"entropy": Output("", "nats", over="live", at=place, form=Logged())},
        settings={"logged of logits": BETAS["default"]},
        claims=_LOGS,
        reach="every step",
    )
