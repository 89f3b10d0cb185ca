"""Boundaries of packed rows, and of blocks: estimators and a loss of tokens without padding, sums in each mode."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.reference.arguments import SIGNAL, claims, columns, cut, given, numbers
from rl_sentinel.frameworks.reference.parts import MODE, MODES, in_parts, loss_output, read_by, settings_of
from rl_sentinel.frameworks.target import Target

PACKED = f"{SIGNAL}.segments.packed"
PADDED = f"{SIGNAL}.segments.padded"
SEGMENTS = f"{SIGNAL}.segments.Segments"

_NAMES = ("gae", "turn_level_gae", "optimal_token_baseline")
ESTIMATORS = tuple(f"{SIGNAL}.advantage.{n}.advantages" for n in _NAMES)
LOSS = f"{SIGNAL}.loss.gspo.loss"
BLOCKS = f"{SIGNAL}.blocks"
WEIGHED = f"{SIGNAL}.loss.importance_sampling"


def boundaries(target: Target) -> Iterator[Boundary]:
    """Estimators that line trained tokens up, and a loss that takes means of rows."""
    for path in ESTIMATORS:
        yield _estimator(target, path)
    yield _loss(target, MODE)
    for mode in MODES:
        for stored in ("padded", "packed"):
            yield _summed(target, mode, stored)


def _stored(target: Target, path: str, batch: Batch) -> dict[str, Any]:
    """The columns of a function, packed, but those of rows."""
    found: dict[str, Any] = dict(given(target.find(path), batch))
    length = batch.length
    for name, column in found.items():
        if column.dim() == 2:
            found[name] = target.call(PACKED, column, length=length)
    found["mask"] = target.call(SEGMENTS, found["mask"], length)
    return found


def _estimator(target: Target, path: str) -> Boundary:
    function = target.find(path)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        knobs = {n: v for n, v in settings.items() if n != "stored"}
        found = target.call(path, **_stored(target, path, batch), **knobs)
        wide = target.call(PADDED, found, length=batch.length, width=batch.width, fill=0.0)
        return {"advantage": wide}

    return Boundary(
        path=f"{PACKED} -> {path} -> {PADDED}",
        stage="advantage",
        call=call,
        reads=columns(function) | {"length"},
        outputs={"advantage": Output("B T", "reward", "advantage")},
        settings={"packed": {**numbers(function), "stored": "packed"}},
        claims=claims(function),
    )


def _loss(target: Target, mode: str) -> Boundary:
    function = target.find(LOSS)

    def one(batch: Batch, **more: object) -> Tensor:
        found: Tensor = target.call(LOSS, **_stored(target, LOSS, batch), **more)
        return found

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return in_parts(target, batch, settings, one, **{n: settings[n] for n in numbers(function)})

    return Boundary(
        path=f"{PACKED} -> {LOSS}",
        stage="policy-loss",
        call=call,
        reads=columns(function) | {"length"},
        outputs={"loss": loss_output(mode)},
        settings={mode: {**numbers(function), **settings_of(mode)}},
        claims=claims(function, aggregation=mode),
    )


def _summed(target: Target, mode: str, stored: str) -> Boundary:
    """A loss of tokens in blocks, with the slope that stands beside it: here both are one number."""
    function, path = target.find(f"{WEIGHED}.loss"), f"{BLOCKS}.summed"

    def weighed(mask: Tensor, logprob: Tensor, old_logprob: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.where(mask, -advantage * torch.exp(logprob - old_logprob), 0.0)
        return value, value

    def one(batch: Batch, *, aggregation: object) -> Tensor:
        packed = stored == "packed"
        found: dict[str, Any] = _stored(target, f"{WEIGHED}.loss", batch) if packed else dict(given(function, batch))
        mask = found.pop("mask")
        columns = [torch.nan_to_num(found[n]) for n in ("logprob", "old_logprob", "advantage")]
        with cut(target, BLOCKS, "BLOCK", 6):
            total: Tensor = target.call(path, weighed, *columns, mask=mask, aggregation=aggregation)
        return total

    return Boundary(
        path=path,
        stage="policy-loss",
        call=lambda batch, settings: in_parts(target, batch, settings, one),
        reads=columns(function) | {"length"} | read_by(mode),
        outputs={"loss": loss_output(mode)},
        settings={f"{mode}, {stored}": {**settings_of(mode), "stored": stored}},
        claims=claims(function, aggregation=mode),
    )
