"""Boundaries of the record that the path hands on: what a loss takes of it, and what mini-batches are cut from it."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.reference.arguments import SIGNAL, claims
from rl_sentinel.frameworks.target import Target

READY = f"{SIGNAL}.ready.Ready"
APART = f"{SIGNAL}.ready.prompts_apart"
SEGMENTS = f"{SIGNAL}.segments.Segments"
PACKED = f"{SIGNAL}.segments.packed"
PADDED = f"{SIGNAL}.segments.padded"

#: Field of the record that has a number per token -> column of the batch that stands for it, and its unit.
_OF_TOKENS = {
    "advantage": ("advantage", "reward"),
    "kl": ("logprob", "nats"),
    "weight": ("value", "reward"),
    "returns": ("returns", "reward"),
}

#: What each row's advantage is divided by, and each token's weight: their product is the outcome, exactly.
_HALF = 0.5


def boundaries(target: Target) -> Iterator[Boundary]:
    """Each column cut into mini-batches and put together; advantages of rows on tokens, with a weight and without."""
    for stored in ("padded", "packed"):
        for outcome in (False, True):
            yield _apart(target, stored, outcome=outcome)
        for weighed in (False, True):
            yield _taken(target, stored, weighed=weighed)


def _record(target: Target, batch: Batch, stored: str, **more: object) -> Any:  # noqa: ANN401 - the copy's own class
    plain = {"live": batch.live, "kept": batch.live, "group": batch.group, "reward": batch.reward}
    laid = {
        n: _stored(target, batch, v, stored) if isinstance(v, Tensor) and v.dim() > 1 else v for n, v in more.items()
    }
    mask = _stored(target, batch, batch.mask, stored)
    mask = target.call(SEGMENTS, mask, batch.length) if stored == "packed" else mask
    return target.call(READY, mask=mask, **{**plain, **laid})


def _stored(target: Target, batch: Batch, column: Tensor, stored: str) -> Tensor:
    found: Tensor = target.call(PACKED, column, length=batch.length) if stored == "packed" else column
    return found


def _wide(target: Target, batch: Batch, column: Tensor, rows: Tensor, stored: str) -> Tensor:
    if stored == "padded":
        return column
    found: Tensor = target.call(PADDED, column, length=batch.length[rows], width=batch.width, fill=0)
    return found


def _apart(target: Target, stored: str, *, outcome: bool) -> Boundary:
    """With an advantage for each token, or for each response, in the place of its reward."""
    fields = {n: about for n, about in _OF_TOKENS.items() if not (outcome and n == "advantage")}

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        columns = {field: getattr(batch, column) for field, (column, _) in fields.items()}
        own = {"advantage": batch.reward} if outcome else {}
        whole = _record(target, batch, stored, outcome=outcome, **columns, **own)
        found = {n: torch.zeros_like(column) for n, column in columns.items()}
        found |= {"trained": torch.zeros_like(batch.mask), "reward": torch.zeros_like(batch.reward)}
        for part in target.call(APART, whole, prompts=settings["prompts"], generator=None):
            rows = torch.isin(batch.group, part.group)
            for field in columns:
                found[field][rows] = _wide(target, batch, getattr(part, field), rows, stored)
            inner = part.mask if isinstance(part.mask, Tensor) else part.mask.mask
            found["trained"][rows] = _wide(target, batch, inner, rows, stored)
            found["reward"][rows] += part.advantage if outcome else part.reward  # a row that comes twice counts twice
        return found

    outputs = {n: Output("B T", unit, column) for n, (column, unit) in fields.items()}
    told = f"{stored}, {'outcomes, ' if outcome else ''}one prompt each"
    return Boundary(
        path=f"{READY} -> {APART}",
        stage="batch",
        call=call,
        reads=frozenset({"reward", "group", "mask", "length", *(column for column, _ in fields.values())}),
        outputs=outputs | {"trained": Output("B T", "", "mask"), "reward": Output("B", "reward", "reward")},
        settings={told: {"prompts": 1, "stored": stored}},
        claims=claims(target.find(APART), conserves="yes"),
    )


def _taken(target: Target, stored: str, *, weighed: bool) -> Boundary:
    """Outcomes on tokens; a weight may be anything where nothing trains."""

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        weight = torch.where(batch.mask, _HALF, torch.nan) if weighed else None
        advantage = batch.reward / _HALF if weighed else batch.reward
        whole = _record(target, batch, stored, outcome=True, advantage=advantage, weight=weight)
        every = torch.ones_like(batch.live)
        return {"advantage": _wide(target, batch, whole.token_advantage(), every, stored)}

    told = f"{stored}, {'weighed' if weighed else 'as it is'}"
    said = {"credit": "outcome", "scope": "sequence", "algorithm": "outcome", "masked": "yes", "masked_slots": "any"}
    return Boundary(
        path=f"{READY}.token_advantage",
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "mask", "length"}),
        outputs={"advantage": Output("B T", "reward", "advantage", "sequence")},
        settings={told: {"stored": stored, "weighed": weighed}},
        claims=claims(target.find(APART), **said),
    )
