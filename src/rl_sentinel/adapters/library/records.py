"""Boundaries of ``Ready``, the result of the path: its token advantages, and its split into mini-batches."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import PADDED, SEGMENTS, SIGNAL, pack
from rl_sentinel.adapters.library.boundary_builder import Compute, bind
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings

READY = f"{SIGNAL}.ready.Ready"
APART = f"{SIGNAL}.ready.prompts_apart"

#: Field of ``Ready`` -> the column that fills it, and its unit.
_FIELDS = {
    "advantage": ("advantage", "reward"),
    "kl": ("logprob", "nats"),
    "weight": ("value", "reward"),
    "returns": ("returns", "reward"),
}

#: Weight of each token. The advantage of the row is divided by it, so that their product is exactly the outcome.
_HALF = 0.5

_OUTCOME = {
    "credit": "outcome",
    "scope": "sequence",
    "algorithm": "outcome",
    "masked": "yes",
    "masked-slots": "any",
}


def boundaries(target: Target) -> Iterator[Boundary]:
    """Boundaries of the split, and of token advantages with and without a weight; padded and packed."""
    for stored in ("padded", "packed"):
        for outcome in (False, True):
            fields = {n: about for n, about in _FIELDS.items() if not (outcome and n == "advantage")}
            yield bind(
                target,
                f"{READY} -> {APART}",
                "batch",
                _split_and_join(stored, outcome=outcome, fields={n: column for n, (column, _) in fields.items()}),
                reads=f"reward group mask length {' '.join(column for column, _ in fields.values())}",
                outputs={n: Output("B T", unit, column) for n, (column, unit) in fields.items()}
                | {"trained": Output("B T", "", "mask"), "reward": Output("B", "reward", "reward")},
                settings={
                    f"{stored}, {'outcomes, ' if outcome else ''}one prompt each": {"prompts": 1, "stored": stored}
                },
                claims={"conserves": "yes"},
            )
        for weights in (False, True):
            yield bind(
                target,
                f"{READY}.token_advantage",
                "advantage",
                _token_advantage,
                reads="reward mask length",
                outputs={"advantage": Output("B T", "reward", "advantage", "sequence")},
                settings={f"{stored}, {'weighed' if weights else 'as it is'}": {"stored": stored, "weighed": weights}},
                claims=_OUTCOME,
                claims_of=APART,
            )


def _ready(target: Target, batch: Batch, stored: str, **more: Any) -> Any:  # noqa: ANN401 - a class under audit
    plain = {"live": batch.live, "kept": batch.live, "group": batch.group, "reward": batch.reward, **more}
    if stored == "padded":
        return target.call(READY, mask=batch.mask, **plain)
    flat = {n: pack(target, v, batch) if isinstance(v, Tensor) else v for n, v in plain.items()}
    return target.call(READY, mask=target.call(SEGMENTS, pack(target, batch.mask, batch), batch.length), **flat)


def _unpack(target: Target, batch: Batch, column: Tensor, rows: Tensor, stored: str) -> Tensor:
    if stored == "padded":
        return column
    padded: Tensor = target.call(PADDED, column, length=batch.length[rows], width=batch.width, fill=0)
    return padded


def _split_and_join(stored: str, *, outcome: bool, fields: Mapping[str, str]) -> Compute:
    """Make the function that splits ``Ready`` into mini-batches and joins them.

    With ``outcome``, rewards are passed as advantages.
    """

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        columns = {field: getattr(batch, column) for field, column in fields.items()}
        rewards = {"advantage": batch.reward} if outcome else {}
        whole = _ready(target, batch, stored, outcome=outcome, **columns, **rewards)
        joined = {n: torch.zeros_like(column) for n, column in columns.items()}
        joined |= {"trained": torch.zeros_like(batch.mask), "reward": torch.zeros_like(batch.reward)}
        for part in target.call(APART, whole, prompts=settings["prompts"], generator=None):
            rows = torch.isin(batch.group, part.group)
            mask = part.mask if isinstance(part.mask, Tensor) else part.mask.mask
            for field, column in {**{n: getattr(part, n) for n in columns}, "trained": mask}.items():
                joined[field][rows] = _unpack(target, batch, column, rows, stored)
            joined["reward"][rows] += part.advantage if outcome else part.reward  # a repeated row counts twice
        return joined

    return compute


def _token_advantage(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """``Ready.token_advantage`` with outcomes as advantages, optionally with a weight that is NaN off the mask."""
    stored = str(settings["stored"])
    weight = torch.where(batch.mask, _HALF, torch.nan) if settings["weighed"] else None
    advantage = batch.reward / _HALF if settings["weighed"] else batch.reward
    whole = _ready(target, batch, stored, outcome=True, advantage=advantage, weight=weight)
    all_rows = torch.ones_like(batch.live)
    return {"advantage": _unpack(target, batch, whole.token_advantage(), all_rows, stored)}
