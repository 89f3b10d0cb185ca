"""TRL's simple self-distillation over micro-batches: the cross-entropy of completions that the model sampled."""

from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself, prompt, trains_whole_completions
from rl_sentinel.adapters.trl.sdpo import Model, first_logit
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

MODULE = "trl.experimental.ssd.ssd_trainer"
TRAINER = f"{MODULE}.SSDTrainer"


_LOSS = claims(
    "ssd_trainer.py, compute_loss, comments: standard cross-entropy loss, aggregate with mask",
    algorithm="negative log-likelihood",
    aggregation="token-mean",
)
_PRODUCER = (
    "ssd_trainer.py, _prepare_training_batch: completions with the mask up to their end token; filter_empty sets the "
    "mask of an empty one to 0"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss, in releases with this trainer."""
    path = f"{TRAINER}.compute_loss"
    yield from try_bind(target, path, "policy-loss", lambda: [_loss(path)])


def make_distiller(kind: Any, micro_batches: int) -> Any:  # noqa: ANN401 - a class of the target
    """A bare trainer with the attributes that its loss reads."""
    return bare_instance(
        kind,
        model_kwarg_keys=frozenset({"logits_to_keep"}),
        current_gradient_accumulation_steps=micro_batches,
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(gather=itself),
        _metrics={mode: defaultdict(list) for mode in ("train", "eval")},
    )


def _loss(path: str) -> Boundary:
    trainer = Object(
        make_distiller,
        {"kind": Constant(Function(TRAINER)), "micro_batches": MICRO_BATCHES},
        at={"kind": "__class__", "micro_batches": "current_gradient_accumulation_steps"},
    )
    inputs = {
        "prompt_ids": prompt(4),
        "prompt_mask": prompt(1),
        "completion_ids": Column("token"),
        "completion_mask": Column("mask", dtype=torch.int64),
    }
    return one_call(
        path=path,
        stage="policy-loss",
        call=path,
        name="loss",
        arguments={
            "self": trainer,
            "model": Object(Model, {"logprobs": Column("logprob"), "tokens": Column("token")}),
            "inputs": Table(inputs),
        },
        each=("micro_batch",),
        fakes={f"{MODULE}.selective_log_softmax": first_logit},
        produced_by={"inputs": _PRODUCER},
        unused=frozenset({"token", "prompt_length"}),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum")},
        settings={"default": {}},
        claims=_LOSS,
        reach="every step of SSDTrainer",
        requires=(equal_micro_batches, no_empty_response, trains_whole_completions),
    )
