"""Boundaries of verl's distillation loss, split into micro-batches and accumulated by the training engine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Packed
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, every_micro_batch_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import actor
from rl_sentinel.adapters.verl.aggregation import aggregation
from rl_sentinel.adapters.verl.engine import CUT, MODES, engine_step, outputs_of
from rl_sentinel.adapters.verl.kl import KINDS
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs, Sizes

LOSS = "verl.trainer.distillation.losses.distillation_ppo_loss"
CONFIG = "verl.workers.config.DistillationConfig"
LOSS_CONFIG = "verl.workers.config.DistillationLossConfig"

_SUPERVISED = (
    "workers/config/distillation.py, DistillationLossConfig, use_policy_gradient: otherwise the distillation loss is "
    "directly backpropagated as a supervised loss; core_algos.kl_penalty, docstring, names its estimators"
)

_COUNTED = (
    "trainer/distillation/losses.py, distillation_loss: dp_size, batch_num_tokens and global_batch_size of the batch "
    "are passed on for loss aggregation"
)

_NEXT = (
    "experimental/teacher_loop/teacher_manager.py, compute_teacher_logprobs_single: one log-prob per token of the "
    "whole sequence, that of the next token; workers/utils/padding.py, left_right_2_no_padding: a nested tensor"
)


@dataclass(frozen=True, slots=True)
class NextTokenNested(Packed):
    """A nested tensor ``[B, 1 + length, 1]`` with a one-token prompt.

    Position t has the value, such as a log-prob, of token t + 1; the last position has 0.
    """

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """Each response, followed by a 0."""
        rows = zip(column, inputs.batch.length.tolist(), strict=True)
        parts = [torch.cat([row[:n], row.new_zeros(1)]).unsqueeze(1) for row, n in rows]
        return torch.nested.as_nested_tensor(parts, layout=torch.jagged)

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding."""
        return Packed.read(self, torch.cat([row[:-1, 0] for row in value.unbind()]), sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows and the lengths."""
        length = torch.tensor([len(row) - 1 for row in value.unbind()], dtype=torch.int64)
        return Sizes(rows=len(length), length=length)


_UNWEIGHTED = claims(
    "losses.py, distillation_ppo_loss: the coefficient weights the loss against the one of task rewards, and is 1 "
    "without them",
    inert={"coefficient": (1.0, 0.5)},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the supervised loss, in each aggregation mode, and of the policy gradient."""
    yield from try_bind(target, LOSS, "policy-loss", lambda: _losses(target))


def _losses(target: Target) -> Iterator[Boundary]:
    for kind, name in KINDS.items():
        if name in (
            "k2",
            "k3",
        ):  # the others have no gradient towards the teacher; verl refuses or advises against them
            claimed = claims(_SUPERVISED, algorithm=f"{name} as a loss")
            for mode in MODES:
                yield _loss(target, f"{kind}, {mode}", mode, {"loss_mode": kind, "use_policy_gradient": False}, claimed)
    on_policy = {"loss_mode": "k1", "use_policy_gradient": True}
    yield _loss(target, "policy gradient", "token-mean", on_policy, Claims())


def _loss(target: Target, setting: str, mode: str, kinds: Mapping[str, object], claimed: Claims) -> Boundary:
    fields: dict[str, Codec] = {
        **constants(use_task_rewards=False, loss_max_clamp=None, **kinds),
        "distillation_loss_coef": Knob("coefficient"),
    }
    config = Object(CONFIG, {**constants(enabled=False), "distillation_loss": Object(LOSS_CONFIG, fields)}, shared=True)
    columns: dict[str, Codec] = {
        "old_log_probs": Column("old_logprob"),
        "advantages": Column("advantage"),
        "teacher_logprobs": Column("ref_logprob", NextTokenNested()),
    }
    step = engine_step(
        LOSS,
        (actor(target, "vanilla", constants(loss_agg_mode=mode)), config),
        {"log_probs": Column("logprob", leaf=True)},
        columns,
        (_NEXT,),
    )
    gradient = bool(kinds["use_policy_gradient"])
    return Boundary(
        path=f"{CUT} -> {LOSS}",
        stage="policy-loss",
        steps=(step,),
        unused=frozenset({"token", "advantage"} if gradient else {"token", "advantage", "old_logprob"}),
        outputs=outputs_of({}),
        settings={setting: {"coefficient": 1.0}},
        claims=claimed | aggregation(target, mode) | claims(_COUNTED, denominator="given", rows="all") | _UNWEIGHTED,
        reach="distillation.enabled=True, distillation.distillation_loss.use_task_rewards=False, "
        f"distillation.distillation_loss.loss_mode={kinds['loss_mode']}, "
        f"distillation.distillation_loss.use_policy_gradient={gradient}",
        # The logged minimum and maximum do not exist without a trained token: verl raises.
        requires=(no_empty_response, equal_micro_batches, every_micro_batch_trains),
    )
