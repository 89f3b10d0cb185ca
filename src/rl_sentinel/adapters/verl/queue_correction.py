"""Boundaries of rollout correction in verl's v1 trainer: weights and rejections, and old log-probs in bypass mode."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.result_forms import KeptMask
from rl_sentinel.adapters.kit.value_codecs import Constant, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.correction import (
    KEEP,
    WEIGHT,
    WEIGHTS,
    neutral_options,
    neutral_weight,
    rejections,
    supports,
)
from rl_sentinel.adapters.verl.queue_fakes import Queue, QueuedBatch, cut, padded
from rl_sentinel.adapters.verl.queue_passes import PASS
from rl_sentinel.adapters.verl.queue_trainer import ADVANTAGE, MODULE, TRAINER
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

_CORRECTION = "algorithm.rollout_correction"
_REJECTION = "seq_mean_k1"

_PRODUCED = (
    "v1/agent_loop_tq.py: response_mask, rm_scores and rollout_log_probs of each output, without padding; "
    "v1/trainer_base.py, _compute_old_log_prob: old_log_probs of the response"
)

_COPIES = claims(
    "v1/trainer_base.py, _compute_old_log_prob, comments: bypass mode sets old_log_probs = rollout_log_probs",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of one weight and one rejection in the trainer's advantage method, and of bypass mode."""
    if not target.has(TRAINER) or target.fails(TRAINER):
        return
    if target.has(ADVANTAGE):
        yield from try_bind(target, ADVANTAGE, "correct", lambda: list(_corrections(target)))
    if target.has(PASS):
        yield from try_bind(target, PASS, "batch", lambda: [_bypass(target)])


def run_on_queue(
    method: Callable[..., Any],
    owner: type,
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    columns: dict[str, Tensor],
    valid: Tensor,
) -> dict[str, Tensor]:
    """Fill the queue, run a method of the trainer, and return the columns ``[B, T]`` of the queue.

    A weight that the method does not write is 1: the loss then has no weights. Rows have rewards of 0.
    """
    lengths = valid.sum(1)
    keys = [f"prompt-{row}_0_0" for row in range(len(lengths))]
    scores = cut(torch.zeros(valid.shape), lengths)
    own = {name: cut(column, lengths) for name, column in columns.items()}
    Queue.fill(keys, {"uid": keys, "rm_scores": scores, "rollout_is_weights": _ones(lengths), **own})
    method(bare_instance(owner, config=config), QueuedBatch(keys, tags=[{} for _ in keys]), {})
    names = [name for name in Queue.rows[keys[0]] if name not in ("uid", "rm_scores")]
    return {name: padded([Queue.rows[key][name] for key in keys], valid.shape[1]) for name in names}


def _ones(lengths: Tensor) -> list[Tensor]:
    return [torch.ones(n) for n in lengths.tolist()]


def _step(target: Target, method: str, settings: Mapping[str, Codec], columns: Mapping[str, Codec]) -> Step:
    chosen = {"algorithm.adv_estimator": Constant("grpo"), "algorithm.use_kl_in_reward": Constant(value=False)}
    options = {f"{_CORRECTION}.{name}": codec for name, codec in settings.items()}
    return Step(
        call=run_on_queue,
        name="queued",
        fakes={f"{MODULE}.tq": Queue},
        arguments={
            **functions(method=method, owner=TRAINER),
            "config": default_config(target, "", {**chosen, **options}, resolved=True),
            "columns": Table({"response_mask": MASK, "rollout_log_probs": Column("rollout_logprob"), **columns}),
            "valid": ResponseMask(),
        },
        produced_by={"columns": _PRODUCED},
    )


def _corrections(target: Target) -> Iterator[Boundary]:
    chosen = WEIGHTS["token"]
    if supports(target, chosen):
        place = Use("queued")["rollout_is_weights"]
        weight = Output("B T", "ratio", "weight", "token", at=place, form=Padded())
        yield _corrected(target, "weight token", chosen, neutral_weight(chosen), {"weight": weight}, WEIGHT)
    known = rejections(target)
    if _REJECTION in known:
        chosen = known[_REJECTION]
        keep = Output("B T", "", "keep", "sequence", at=Use("queued")["response_mask"], form=KeptMask(Padded()))
        yield _corrected(target, f"reject {_REJECTION}", chosen, neutral_options(chosen), {"keep": keep}, KEEP)


def _corrected(  # noqa: PLR0913 - the parts in which they differ
    target: Target, name: str, changed: Settings, neutral: Settings, outputs: Mapping[str, Output], claimed: Claims
) -> Boundary:
    own = knobs(*changed)
    reach = ", ".join(f"{_CORRECTION}.{option}={value}" for option, value in changed.items())
    return Boundary(
        path=ADVANTAGE,
        stage="correct",
        steps=(_step(target, ADVANTAGE, own, {"old_log_probs": Column("old_logprob")}),),
        outputs=outputs,
        settings={name: {**changed, **neutral}},
        claims=claimed,
        reach=f"trainer.use_v1=True (the default), {reach}",
        requires=(no_empty_response,),
    )


def _bypass(target: Target) -> Boundary:
    place = Use("queued")["old_log_probs"]
    return Boundary(
        path=PASS,
        stage="batch",
        steps=(_step(target, PASS, {"bypass_mode": Constant(value=True)}, {}),),
        unused=frozenset({"mask"}),
        outputs={"rollout_logprob": Output("B T", "nats", "rollout_logprob", at=place, form=Padded())},
        settings={"bypass mode": {}},
        claims=_COPIES,
        reach=f"trainer.use_v1=True (the default), {_CORRECTION}.bypass_mode=True",
        requires=(no_empty_response,),
    )
