"""Boundaries of log-probs and entropy from logits, and of the advantages of trajectories of several steps."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims_from_text
from rl_sentinel.frameworks.reference.arguments import SIGNAL, claims, columns, given, numbers
from rl_sentinel.frameworks.reference.refusals import of_numbers
from rl_sentinel.frameworks.target import Target

LOGPROB = f"{SIGNAL}.logprob"
OVER = f"{SIGNAL}.steps.over_trajectories"
ESTIMATOR = f"{SIGNAL}.advantage.grpo.advantages"

#: Function -> quantities of its outputs, in order.
_MADE: Mapping[str, tuple[str, ...]] = {"logprobs": ("logprob",), "logprobs_and_entropy": ("logprob", "entropy")}

#: Quantity -> what it is by its formula.
_SAID = {"logprob": "log-prob of the token", "entropy": "entropy of the logits"}


def boundaries(target: Target) -> Iterator[Boundary]:
    """Token quantities that logits make; an outcome estimator over trajectories."""
    setattr(target.module(LOGPROB), "BLOCK_CPU", 6)  # noqa: B010 - cases are short: several blocks each
    for name, quantities in _MADE.items():
        path = f"{LOGPROB}.{name}"
        yield _from_logits(target, path, target.find(path), quantities)
        yield from of_numbers(target, path, target.find(path))
    path = f"{SIGNAL}.scan.discounted_suffix_sums"
    yield from of_numbers(target, path, target.find(path), values=torch.ones(2, 2))
    yield _lined_up(target)
    yield from (_turns(target, stored) for stored in ("padded", "packed"))
    yield _over_trajectories(target)


def _from_logits(target: Target, path: str, function: Callable[..., Any], quantities: tuple[str, ...]) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        found = target.call(path, **given(function, batch), **settings)
        return dict(zip(quantities, found if len(quantities) > 1 else (found,), strict=True))

    return Boundary(
        path=path,
        stage="batch",
        call=call,
        reads=columns(function),
        outputs={n: Output("B T", "nats", n) for n in quantities},
        settings={"default": numbers(function)},
        claims=claims(function, gradient="own", **{f"algorithm:{n}": _SAID[n] for n in quantities})
        | claims_from_text({"knob:temperature": "0.7|1.6"}, f"{path}: docstring"),
    )


def _lined_up(target: Target) -> Boundary:
    """Numbers of tokens lined up, trained ones first, and put back."""
    scan = f"{SIGNAL}.scan"

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        order = target.call(f"{scan}.trained_first", mask=batch.mask)
        moved = target.call(f"{scan}.lined_up", batch.value, mask=batch.mask, order=order)
        return {"advantage": target.call(f"{scan}.put_back", moved, mask=batch.mask, order=order)}

    return Boundary(
        path=f"{scan}.lined_up -> {scan}.put_back",
        stage="advantage",
        call=call,
        reads=frozenset({"value", "mask"}),
        outputs={"advantage": Output("B T", "reward", "advantage")},
        claims=claims(target.find(f"{scan}.put_back"), scope="token", masked="yes"),
    )


def _turns(target: Target, stored: str) -> Boundary:
    """How many trained tokens stand before each."""
    segments = f"{SIGNAL}.segments"

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        if stored == "padded":
            return {"turn": target.call(f"{segments}.turns", batch.mask).double()}
        own = target.call(f"{segments}.packed", batch.mask, length=batch.length)
        found = target.call(f"{segments}.turns", target.call(f"{segments}.Segments", own, batch.length))
        lengths = {"length": batch.length, "width": batch.width}
        return {"turn": target.call(f"{segments}.padded", found, **lengths, fill=0).double()}

    return Boundary(
        path=f"{segments}.turns",
        stage="batch",
        call=call,
        reads=frozenset({"mask", "length"}),
        outputs={"turn": Output("B T", "count", "turn")},
        settings={stored: {"stored": stored}},
        claims=claims(target.find(f"{segments}.turns"), algorithm="trained tokens before"),
    )


def _over_trajectories(target: Target) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        estimator = partial(target.find(ESTIMATOR), **settings)
        columns = {"group": batch.group, "live": batch.live, "trajectory": batch.trajectory, "last": batch.last_step}
        return {"advantage": target.call(OVER, estimator, batch.reward, **columns)}

    return Boundary(
        path=OVER,
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "group", "mask", "trajectory", "last_step"}),
        outputs={"advantage": Output("B", "reward", "advantage")},
        settings={"grpo": {"standardise": False, "epsilon": 0.0}},
        claims=claims(
            target.find(OVER),
            algorithm="outcomes of trajectories, centred",
            scope="group",
            grouping="id",
            credit="outcome",
            masked="yes",
            baseline="relative",
            trajectories="step-wise",
        ),
    )
