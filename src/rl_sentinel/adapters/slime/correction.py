"""slime's off-policy corrections: sequence masking (OPSM), truncated importance sampling and IcePop."""

from collections.abc import Iterator

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Packed
from rl_sentinel.adapters.kit.result_forms import OffMask
from rl_sentinel.adapters.kit.value_codecs import Derived
from rl_sentinel.adapters.slime.arguments import (
    LOSS,
    LOSS_MASKS,
    MASKS,
    PPO,
    RESPONSE_LENGTHS,
    TOTAL_LENGTHS,
    options,
    samples,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the sequence mask, and of each importance weight."""
    yield from bindable(
        target,
        _masking(),
        _weight("vanilla_tis_function", {"tis_clip_low": 0.0, "tis_clip": 2.0}),
        _weight("icepop_function", {"tis_clip_low": 0.5, "tis_clip": 2.0}),
    )


def _masking() -> Boundary:
    path = f"{PPO}.compute_opsm_mask"
    arguments = {
        "args": options("opsm_delta"),
        "full_log_probs": samples("logprob"),
        "full_old_log_probs": samples("old_logprob"),
        "advantages": samples("advantage"),
        "loss_masks": LOSS_MASKS,
    }
    keep = OffMask(Packed(), 1.0)
    return one_call(
        path=path,
        stage="correct",
        call=path,
        name="result",
        arguments=arguments,
        produced_by={"loss_masks": MASKS},
        outputs={"keep": Output("B T", "", "keep", "sequence", at=Use("result")[0], form=keep)},
        settings={"default": {"opsm_delta": 1e-4}, "wide": {"opsm_delta": 0.1}},
        reach="--use-opsm",
    )


def _weight(name: str, bounds: Settings) -> Boundary:
    path = f"{LOSS}.{name}"
    arguments = {
        "args": options(*bounds),
        # The function returns loss * weight, so a loss of 1 per token gives the weight.
        "pg_loss": Derived(lambda inputs: torch.ones(int(inputs.batch.length.sum()))),
        "train_log_probs": samples("old_logprob"),
        "rollout_log_probs": samples("rollout_logprob"),
        "loss_masks": LOSS_MASKS,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
    }
    return one_call(
        path=path,
        stage="correct",
        call=path,
        name="result",
        arguments=arguments,
        produced_by={"loss_masks": MASKS},
        outputs={"weight": Output("B T", "ratio", "weight", "token", at=Use("result")[0], form=Packed())},
        settings={"default": bounds},
        reach="--use-tis",
    )
