"""slime's off-policy corrections: sequence masking, truncated weights, IcePop."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.slime.ragged import LOSS, PPO, arguments, lengths, masks, parts, split_back
from rl_sentinel.frameworks.target import Target

MASKING = f"{PPO}.compute_opsm_mask"

#: Weights, with slime's own default bounds first.
WEIGHTS: Mapping[str, Mapping[str, Settings]] = {
    f"{LOSS}.vanilla_tis_function": {"default": {"tis_clip_low": 0.0, "tis_clip": 2.0}},
    f"{LOSS}.icepop_function": {"default": {"tis_clip_low": 0.5, "tis_clip": 2.0}},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The masking, then each weight."""
    for path in (MASKING, *WEIGHTS):
        try:
            target.find(path)
            yield _masking(target) if path == MASKING else _weight(target, path)
        except Unbindable as why:
            yield Unbound(path, "correct", str(why))


def _masking(target: Target) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = (parts(batch, "logprob"), parts(batch, "old_logprob"), parts(batch, "advantage"))
        kept, _ = target.call(MASKING, arguments(settings), *given, masks(batch))
        keep = split_back(kept, batch)
        return {"keep": torch.where(batch.mask, keep, torch.ones_like(keep))}

    return Boundary(
        path=MASKING,
        stage="correct",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "advantage", "mask", "length"}),
        outputs={"keep": Output("B T", "", "keep", "sequence")},
        settings={"default": {"opsm_delta": 1e-4}, "wide": {"opsm_delta": 0.1}},
        reach="--use-opsm",
    )


def _weight(target: Target, path: str) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        loss = torch.ones(int(batch.length.sum()))
        given = {"train_log_probs": parts(batch, "old_logprob"), "loss_masks": masks(batch), **lengths(batch)}
        given["rollout_log_probs"] = parts(batch, "rollout_logprob")
        weighed, *_ = target.call(path, arguments(settings), pg_loss=loss, **given)
        return {"weight": split_back(weighed, batch)}

    return Boundary(
        path=path,
        stage="correct",
        call=call,
        reads=frozenset({"old_logprob", "rollout_logprob", "mask", "length"}),
        outputs={"weight": Output("B T", "ratio", "weight", "token")},
        settings=WEIGHTS[path],
        reach="--use-tis",
    )
