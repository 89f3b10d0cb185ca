"""Boundaries of off-policy sequence masking, applied to the result of ``signal.path``."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import NUMBERS, SIGNAL, pack
from rl_sentinel.adapters.library.boundary_builder import bind
from rl_sentinel.adapters.library.paths import READY, loss_ready
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings

TRUSTED = f"{SIGNAL}.ready.trusted"

_THRESHOLD: Settings = {"threshold": NUMBERS["threshold"]}
_CLAIMS = {"masked": "yes", "masked-slots": "any", "knob:threshold": "0.01|0.5"}


def boundaries(target: Target) -> Iterator[Boundary]:
    """Boundaries of the masking with one advantage per token or per response; the latter also packed."""
    rejected = {"rejected": Output("", "", "rejected_fraction", over="live")}
    yield bind(
        target,
        f"{READY} -> {TRUSTED}",
        "correct",
        _by_token_advantage,
        reads="logprob old_logprob advantage mask",
        outputs={"keep": Output("B T", "", "keep", "sequence"), **rejected},
        settings={"default": _THRESHOLD},
        claims=_CLAIMS,
    )
    for stored in ("padded", "packed"):
        yield bind(
            target,
            f"{READY} -> {TRUSTED}",
            "correct",
            _by_outcome(packed=stored == "packed"),
            reads="logprob old_logprob reward group mask length",
            outputs={"keep": Output("B", "", "keep", "sequence"), **rejected},
            settings={f"outcomes, {stored}": {**_THRESHOLD, "per_response": True}},
            claims={
                **_CLAIMS,
                "algorithm:keep": "off policy sequences kept",
                "algorithm:rejected": "rejected fraction",
            },
        )


def _by_token_advantage(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """Off-policy sequence masking with one advantage per token."""
    whole = loss_ready(target, batch, (), {"estimator": lambda mask: torch.where(mask, batch.advantage, 0.0)})
    count = float(batch.live.sum().clamp(min=1))
    trusted = target.call(TRUSTED, whole, batch.logprob, batch.old_logprob, **settings, denominator=count)
    return {"keep": trusted.mask.float(), "rejected": trusted.dropped_fraction}


def _by_outcome(*, packed: bool) -> Callable[[Target, Batch, Settings], Mapping[str, Tensor]]:
    """Make the function that masks off-policy sequences with one advantage per response."""

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        whole = loss_ready(target, batch, (), {"estimator": lambda reward: reward}, packed=packed)
        columns = [batch.logprob, batch.old_logprob]
        columns = [pack(target, c, batch) for c in columns] if packed else columns
        count = float(batch.live.sum().clamp(min=1))
        trusted = target.call(TRUSTED, whole, *columns, threshold=settings["threshold"], denominator=count)
        keep = target.call(f"{SIGNAL}.reduce.live_rows", trusted.mask).float()
        return {"keep": keep, "rejected": trusted.dropped_fraction}

    return compute
