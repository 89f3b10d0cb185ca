"""GOLD in TRL: the distance between a student and a teacher with different tokenizers."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.requirements import every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import trains_whole_completions
from rl_sentinel.adapters.trl.distillation_codecs import every_completion_trains
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

LOSS = "trl.experimental.gold.gold_trainer.ULDLoss"
ENTRY = f"{LOSS}.__call__"

#: The strategy that merges the probabilities of a token's parts by the chain rule.
_CHAIN_RULE = "bayesian"

#: Label of a token that does not train.
_IGNORED = -100

#: Setting -> whether tokens are aligned by their bytes, and the probability of the first half of each teacher token.
SETTINGS: dict[str, Settings] = {
    "by position": {"aligned": False, "temperature": 1.0},
    "by bytes": {"aligned": True, "temperature": 1.0},
    "by bytes, halved tokens of the teacher": {"aligned": True, "temperature": 1.0, "share": 0.25},
}

_CLAIMS = claims(
    "gold_config.py, uld_token_merge_strategy 'bayesian': the logits that predict a token, merged by the chain rule; "
    "gold_trainer.py, _compute_distillation_loss: L1 of sorted probabilities, by the tokens of a row, the mean of rows",
    algorithm="universal logit distance",
    aggregation="sequence-mean-token-mean",
    rows="all",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the distance, in releases that align tokens by bytes and merge probabilities by the chain rule."""
    if not target.has(ENTRY):
        return
    if why := target.fails(LOSS):
        yield Unbound(ENTRY, "aggregate", why)
    elif "teacher_byte_offsets" in inspect.signature(target.find(ENTRY)).parameters:
        yield from bindable(target, _distance())


def without_ties(batch: Batch) -> Batch:
    """The batch with whole completions trained; if tokens are equally likely, unequal numbers are added to logits."""
    whole = every_completion_trains(batch)
    if not ties(Inputs(whole)):
        return whole
    steps = torch.arange(whole.logits.shape[2], device="cpu") / 8
    return with_columns(whole, logits=whole.logits + steps)


def ties(inputs: Inputs) -> str:
    """The reason to skip a batch where two tokens are equally likely for the student; empty otherwise."""
    ordered = inputs.batch.logits.sort(2).values
    return "two tokens of the vocabulary are equally likely" if bool((ordered.diff(dim=2) == 0).any()) else ""


def distance(  # noqa: PLR0913 - the parts of a loss
    kind: Callable[..., Callable[..., Tensor]],
    student: Tensor,
    teacher: Tensor,
    trained: Tensor,
    temperature: float,
    share: float,
    *,
    aligned: bool,
) -> Tensor:
    """Compute the loss for logits ``[B, T, V]`` of the tokens after a prompt of one token.

    With a ``share`` below 1, the teacher has two tokens for each student token; the first one has this probability.
    """
    about = distance_settings(temperature, aligned=aligned)
    loss = kind(SimpleNamespace(**about, uld_token_merge_strategy=_CHAIN_RULE))
    halves = 1 if share == 1 else 2
    own, split = trained.bool(), trained.bool().repeat_interleave(halves, 1)
    return loss(
        pad(student, (0, 0, 0, 1)),
        pad(halved(teacher, share) if halves > 1 else teacher, (0, 0, 0, 1)),
        _labels(own),
        _labels(split),
        _labels(own).clamp(min=0),
        _labels(split).clamp(min=0),
        student_byte_offsets=_bytes(own, 2),
        teacher_byte_offsets=_bytes(split, 2 // halves),
    )


def distance_settings(temperature: float, *, aligned: bool) -> dict[str, Any]:
    """Fields of the configuration that the loss reads, except the merge strategy. The cross-entropy has weight 0."""
    about = {"uld_student_temperature": temperature, "uld_teacher_temperature": temperature, "beta": 0.5}
    about |= {"uld_crossentropy_weight": 0.0, "uld_distillation_weight": 1.0, "use_extended_uld": aligned}
    return about | dict.fromkeys(("uld_skip_student_eos", "uld_skip_teacher_eos", "uld_use_hybrid_loss"), False)


def halved(logits: Tensor, share: float) -> Tensor:
    """Split each token into two: logits ``[B, 2T, V]``, those of a first half and those of the token in turn.

    The first half is token 0 with probability ``share``, else token 1.
    """
    first = torch.full_like(logits, -torch.inf)
    first[..., 0], first[..., 1] = torch.tensor([share, 1 - share]).log().tolist()
    return torch.stack([first, logits], 2).flatten(1, 2)


def _labels(trained: Tensor) -> Tensor:
    """The labels after a prompt of one token: 0 where a token trains."""
    return pad(torch.where(trained, 0, _IGNORED), (1, 0), value=_IGNORED)


def _bytes(trained: Tensor, size: int) -> Tensor:
    """The start and end byte ``[B, 1 + T, 2]`` of each token, with ``size`` bytes per token and an empty prompt."""
    ends = torch.arange(trained.shape[1] + 1) * size
    return torch.stack([(ends - size).clamp(min=0), ends], 1).expand(len(trained), -1, -1)


def _distance() -> Boundary:
    return one_call(
        path=ENTRY,
        stage="aggregate",
        call=distance,
        name="loss",
        arguments={
            "kind": Constant(Function(LOSS)),
            "student": Column("logits"),
            "teacher": Column("ref_logits"),
            "trained": ResponseMask(),
            "temperature": Knob("temperature"),
            "share": Knob("share", default=1.0),
            "aligned": Knob("aligned"),
        },
        produced_by={"trained": "gold_trainer.py, compute_loss: labels of the completion, -100 at prompt and padding"},
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings=SETTINGS,
        claims=_CLAIMS,
        reach="use_uld_loss=True, uld_token_merge_strategy=bayesian; by position: use_extended_uld=False",
        requires=(every_row_trains, no_empty_response, trains_whole_completions, ties),
        domain=without_ties,
    )
