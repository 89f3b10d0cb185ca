"""slime's training step in revisions where it reduces the reports, and a user's correction that rejects tokens."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.core.boundary import Step
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.codec import Codec

PATH = "slime.backends.megatron_utils.model.train_one_step"


def reported_by_step(
    step: Callable[..., Any],
    args: Any,  # noqa: ANN401 - a namespace
    losses_reduced: list[dict[str, Any]],
    global_batch_size: int,
    cp_size: int,
) -> dict[str, float]:
    """Run slime's training step after Megatron's schedule has returned ``losses_reduced``; return the metrics.

    ``cp_size`` ranks share each sequence, and the reports are sums over these ranks. The model has no part on this
    rank; the optimizer and the learning rate schedule are fakes.
    """
    vars(args).update(
        global_batch_size=global_batch_size,
        micro_batch_size=1,
        seq_length=1,
        decoder_seq_length=None,
        custom_megatron_before_train_step_hook_path=None,
        enable_mtp_training=False,
        empty_unused_memory_level=0,
        ci_test=False,
    )
    optimizer = SimpleNamespace(zero_grad=lambda: None, step=lambda: (True, 0.0, 0))
    state = {**parallel_state_of_one_process(), "get_context_parallel_world_size": lambda *_a, **_k: cp_size}
    fakes: dict[str, Any] = {
        "get_args": lambda: args,
        "get_forward_backward_func": lambda: lambda **_options: losses_reduced,
        "mpu": SimpleNamespace(**state),
    }
    scheduler = SimpleNamespace(step=lambda increment: None)  # noqa: ARG005 - its name
    with replaced_globals(step.__globals__, **fakes):
        metrics, _ = step(args, 0, 0, [], [], optimizer, scheduler, len(losses_reduced))
    return dict(metrics)


def reduction(args: Codec) -> Step:
    """The step that calls :func:`reported_by_step` with the reports of the earlier step ``trained``."""
    return Step(
        call=reported_by_step,
        name="reported",
        arguments={
            "step": Constant(Function(PATH)),
            "args": args,
            "losses_reduced": Earlier(Use("trained")["reported"]),
            "global_batch_size": Derived(lambda inputs: inputs.batch.rows),
            "cp_size": Constant(1),
        },
        produced_by={"losses_reduced": "model.py, train_one_step: forward_backward_func, the reports of micro-batches"},
    )


def load_rejecting(_path: str) -> Callable[..., Any]:
    """A fake for slime's loader of user functions."""
    return reject_outside


def reject_outside(
    args: Any,  # noqa: ANN401 - a namespace
    *,
    pg_loss: Tensor,
    train_log_probs: list[Tensor],
    rollout_log_probs: list[Tensor],
    loss_masks: list[Tensor],
    **_more: object,
) -> tuple[Tensor, list[Tensor], dict[str, Tensor]]:
    """A user's correction, which rejects every token with a ratio outside of the two bounds.

    It returns the loss of each token, the masks without the rejected tokens, and the metrics of each token.
    """
    ratio = torch.exp(torch.cat(train_log_probs) - torch.cat(rollout_log_probs))
    inside = (ratio >= args.tis_clip_low) & (ratio <= args.tis_clip)
    parts = inside.split([len(mask) for mask in loss_masks])
    masks = [mask * part for mask, part in zip(loss_masks, parts, strict=True)]
    return pg_loss, masks, {"tis": ratio, "tis_clipfrac": (~inside).float(), "tis_abs": (ratio - 1).abs()}
