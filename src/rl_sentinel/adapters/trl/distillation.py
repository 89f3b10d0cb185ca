"""TRL's distillation with GKD and related trainers: divergence, loss of a batch, labels of sampled completions."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import every_row_trains, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import sampled_labels
from rl_sentinel.adapters.trl.arguments import trains_whole_completions
from rl_sentinel.adapters.trl.distillation_codecs import (
    PROMPT_WIDTH,
    LabelForm,
    LeftLabels,
    LeftSequence,
    SampledSequence,
    SampledTokens,
    every_completion_trains,
    every_position,
    prompt_lengths,
    whole_completions,
)
from rl_sentinel.adapters.trl.logit_model import of_shared_weights
from rl_sentinel.adapters.trl.preferences import trainer_path
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Form, Inputs

GKD = "trl.trainer.gkd_trainer.GKDTrainer"
GKD_EXPERIMENTAL = "trl.experimental.gkd.gkd_trainer.GKDTrainer"

#: Other trainers whose divergence has the same name, and is also their loss of a batch.
RELATIVES = (
    "trl.experimental.gold.gold_trainer.GOLDTrainer",
    "trl.experimental.iw_opd.iw_opd_trainer.IWOPDTrainer",
    "trl.experimental.distillation.distillation_trainer.DistillationTrainer",
)

_DOC = "gkd_trainer.py, generalized_jsd_loss, docstring: equation 1 of https://huggingface.co/papers/2306.13649"
_BETA = "gkd_config.py, GKDConfig, docstring of beta: 0.0 is the KL divergence, 1.0 is the inverse KL divergence"
_JSD = claims(_DOC, algorithm="generalized jsd")
_BATCHMEAN = claims(
    "gkd_trainer.py, reduction 'batchmean': divided by the tokens whose label is not -100", aggregation="token-mean"
)

#: Setting -> weight of the teacher in the mixture, and temperature.
BETAS: Mapping[str, Settings] = {
    "default": {"mixture": 0.5, "temperature": 1.0},
    "beta 0.1": {"mixture": 0.1, "temperature": 1.0},
    "beta 0.9": {"mixture": 0.9, "temperature": 1.0},
    "beta 0": {"mixture": 0.0, "temperature": 1.0},
    "beta 1": {"mixture": 1.0, "temperature": 1.0},
    "temperature": {"mixture": 0.5, "temperature": 0.5},
}

#: The setting in which the student samples the completions.
SAMPLED = "sampled"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the divergence with and without labels, the loss of a batch, the labels of sampled completions."""
    gkd = trainer_path(target, GKD, GKD_EXPERIMENTAL)
    for path in (gkd, *RELATIVES):
        if not target.has(path):
            continue
        if why := target.fails(path):
            yield Unbound(path, "aggregate", why)
        else:
            yield from _of_trainer(target, path)


def _of_trainer(target: Target, path: str) -> Iterator[Boundary | Unbound]:
    function = f"{path}.generalized_jsd_loss"
    if target.has(function):
        labeled = "labels" in inspect.signature(target.find(function)).parameters
        yield from bindable(target, *(_divergence(function, name) for name in BETAS if labeled))
        divides = OVER_TOKENS in source_of(target.find(function))
        reductions = {**REDUCTIONS, **({"batchmean": _TOKENS} if divides else {})}
        yield from bindable(target, *(_without_labels(function, name, claimed) for name, claimed in reductions.items()))
        yield from bindable(target, *(_loss(path, name) for name in ("default", "beta 0.1")), _loss(path, SAMPLED))
    generate = f"{path}.generate_on_policy_outputs"
    if target.has(generate) and "new_labels" in source_of(target.find(generate)):
        yield from bindable(target, sampled_labels.boundary(target, generate))


def _divergence(path: str, name: str) -> Boundary:
    arguments: dict[str, Codec] = {
        "student_logits": Column("logits"),
        "teacher_logits": Column("ref_logits"),
        "labels": Column("mask", LabelForm()),
        "beta": Knob("mixture"),
        "temperature": Knob("temperature"),
    }
    return one_call(
        path=path,
        stage="aggregate",
        call=path,
        name="loss",
        arguments=arguments,
        produced_by={"labels": _PRODUCER},
        outputs={"loss": Output("", "nats", "loss", at=Use("loss"))},
        settings={name: BETAS[name]},
        claims=_JSD | _BATCHMEAN | claims(_BETA),
        reach=", ".join(f"{k}={v}" for k, v in BETAS[name].items()),
        requires=(has_trained_token,),
        domain=whole_completions,
    )


_PRODUCER = "gkd_trainer.py, compute_loss: labels of the completion, -100 at the prompt and the padding"

#: Reduction -> claims without labels.
REDUCTIONS: Mapping[str, Claims] = {
    "sum": claims("gkd_trainer.py, reduction 'sum'", aggregation="token-sum"),
    "batchmean": claims(
        "gkd_trainer.py, reduction 'batchmean', as torch.nn.functional.kl_div: the sum, divided by the batch size",
        aggregation="sequence-mean-token-sum",
        rows="all",
    ),
}

#: In the source of releases that divide by the number of tokens without labels, too.
OVER_TOKENS = "jsd.size(0) * jsd.size(1)"

_TOKENS = claims("gkd_trainer.py, reduction 'batchmean': the sum, divided by all tokens", aggregation="token-mean")


def every_position_trains(inputs: Inputs) -> str:
    """The reason to skip a batch with an untrained position (without labels, every position counts); else empty."""
    every = bool(inputs.batch.mask.all()) and not inputs.layout.extra
    return "" if every else "a position does not train, but without labels every position counts"


def _without_labels(path: str, reduction: str, claimed: Claims) -> Boundary:
    arguments: dict[str, Codec] = {
        "student_logits": Column("logits"),
        "teacher_logits": Column("ref_logits"),
        "beta": Knob("mixture"),
        "reduction": Constant(reduction),
    }
    return one_call(
        path=path,
        stage="aggregate",
        call=path,
        name="loss",
        arguments=arguments,
        outputs={"loss": Output("", "nats", "loss", at=Use("loss"))},
        settings={f"{reduction}, no labels": {"mixture": 0.5}},
        claims=_JSD | claimed,
        reach=f"called directly, reduction={reduction}",
        requires=(every_position_trains,),
        domain=every_position,
    )


class LogitsModel:
    """A fake model that returns fixed logits."""

    def __init__(self, logits: Tensor) -> None:
        """Store ``[B, S, V]`` logits."""
        self.logits = logits

    def eval(self) -> None:
        """Do nothing."""

    def __call__(self, *arguments: Any, **inputs: Any) -> Any:  # noqa: ANN401 - as a module
        """The result of ``forward``. A wrapper may call ``forward``, and trainers may replace it for one call."""
        return self.forward(*arguments, **inputs)

    def forward(self, **_inputs: Any) -> Any:  # noqa: ANN401 - as a model of transformers
        """The logits."""
        return SimpleNamespace(logits=of_shared_weights(self.logits, self.logits))


def _loss(path: str, name: str) -> Boundary:
    entry = f"{path}.compute_loss"
    settings: Settings = {"mixture": 0.5 if name == SAMPLED else BETAS[name]["mixture"]}
    shifted: Form = SampledSequence(shift=1) if name == SAMPLED else LeftSequence(shift=1)
    trainer = Object(
        make_distiller,
        {
            "kind": Constant(Function(path)),
            "beta": Knob("mixture"),
            "teacher": Column("ref_logits", shifted),
        },
        at={"kind": "__class__", "teacher": "teacher_model.logits"},
    )
    lengths = frozenset({"mask"})
    inputs: dict[str, Codec] = {
        "input_ids": Computed(lengths, lambda i: _tokens(i, 5, 4, 0), "the mask cannot be read from ids of one value"),
        "attention_mask": Computed(lengths, lambda i: _tokens(i, 1, 1, 0), "the mask covers whole sequences"),
        "labels": Column("mask", LeftLabels(), torch.int64),
        "prompts": Derived(lambda i: _prompts(i, 4, 0)),
        "prompt_attention_mask": Derived(lambda i: _prompts(i, 1, 0)),
    }
    if name == SAMPLED:
        for key, prompt, response, padding in (
            ("input_ids", 4, 5, 0),
            ("attention_mask", 1, 1, 0),
            ("labels", -100, 5, -100),
        ):
            inputs[key] = Column("mask", SampledTokens(prompt=prompt, response=response, padding=padding), torch.int64)
        for key, token in (("prompts", 4), ("prompt_attention_mask", 1)):
            inputs[key] = Derived(partial(_full_prompts, token=token))
    return one_call(
        path=entry,
        stage="aggregate",
        call=distil,
        name="loss",
        arguments={
            "entry": Constant(Function(entry)),
            "distiller": trainer,
            "model": Object(LogitsModel, {"0": Column("logits", shifted)}, at={"0": "logits"}),
            "inputs": Table(inputs),
        },
        produced_by={"inputs": "trl, DataCollatorForChatML: sequences and prompts padded at the left, labels of -100"},
        outputs={"loss": Output("", "nats", "loss", at=Use("loss"))},
        settings={name: settings},
        claims=_JSD | _BATCHMEAN,
        reach="lmbda above 0: completions of the student"
        if name == SAMPLED
        else f"every step on completions of the data set, beta={settings['mixture']}",
        requires=(every_row_trains, no_empty_response, trains_whole_completions),
        domain=every_completion_trains,
    )


def _tokens(inputs: Inputs, response: int, prompt: int, padding: int) -> Tensor:
    trained = torch.where(inputs.batch.mask, response, padding)
    return LeftSequence(fill=padding, prompt=prompt).lay_out(trained, inputs)


def _prompts(inputs: Inputs, prompt: int, padding: int) -> Tensor:
    lengths = prompt_lengths(inputs.batch)
    return torch.tensor([[padding] * (max(lengths) - n) + [prompt] * n for n in lengths])


def _full_prompts(inputs: Inputs, token: int) -> Tensor:
    return torch.full((inputs.batch.rows, PROMPT_WIDTH), token)


def make_distiller(kind: Any, beta: float, teacher: Tensor) -> Any:  # noqa: ANN401 - a class of the target
    """A bare trainer with the attributes that its loss reads."""
    options: dict[str, Any] = dict.fromkeys(
        ("use_liger_gkd_loss", "use_liger_loss", "use_uld_loss", "use_teacher_server"), False
    )
    options |= {"loss_top_k": 0, "loss_add_tail": False, "_local_teacher_tokenizer_matches_student": True}
    options["model"] = SimpleNamespace(training=False)  # without the token count of an optimizer step
    return bare_instance(
        kind, beta=beta, temperature=1.0, distillation_objective="jsd", teacher_model=LogitsModel(teacher), **options
    )


def distil(entry: Callable[..., Any], distiller: Any, model: LogitsModel, inputs: Mapping[str, Tensor]) -> Tensor:  # noqa: ANN401 - a trainer
    """Compute the loss of a batch; ``entry`` is the audited method that computes the loss."""
    loss: Tensor = entry(distiller, model, inputs)
    return loss
