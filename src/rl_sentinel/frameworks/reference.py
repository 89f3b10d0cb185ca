"""The signal library itself: one boundary for each estimator, loss and KL that a walk finds."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Boundary, Claim, Output, Stage, Unbound
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.modules import defined
from rl_sentinel.frameworks.framework import Framework
from rl_sentinel.frameworks.target import Target

SIGNAL = "rl_sentinel.signal"

#: Parameter of a signal function -> the column that it is made of.
COLUMN_OF: Mapping[str, str] = {
    "reward": "reward",
    "group": "group",
    "length": "length",
    "live": "mask",
    "mask": "mask",
    "logprob": "logprob",
    "old_logprob": "old_logprob",
    "ref_logprob": "ref_logprob",
    "advantage": "advantage",
}

#: Parameter that is a number -> what it is set to; in the unit of its docstring.
NUMBERS: Mapping[str, Scalar] = {"epsilon": 1e-6, "clip_low": 0.2, "clip_high": 0.28}

#: Parameter that is a choice -> the claim that it decides.
CHOICES: Mapping[str, str] = {"standardise": "standardised"}

#: Mode of aggregation -> what of the whole mini-batch it is divided by.
DENOMINATORS: Mapping[str, Callable[[Batch], Tensor]] = {
    "token-mean": lambda b: b.mask.sum(),
    "sequence-mean-token-mean": lambda b: b.live.sum(),
    "sequence-mean-token-sum": lambda b: b.live.sum(),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Whatever the packages of the signal library define."""
    for name, function in defined(target.module(f"{SIGNAL}.advantage"), "advantages").items():
        yield from _guarded(f"{SIGNAL}.advantage.{name}.advantages", "advantage", function, partial(_estimator, target))
    for name, function in defined(target.module(f"{SIGNAL}.loss"), "loss").items():
        yield from _guarded(f"{SIGNAL}.loss.{name}.loss", "policy-loss", function, partial(_loss, target))
    for name, function in inspect.getmembers(target.module(f"{SIGNAL}.kl"), inspect.isfunction):
        if function.__module__ == f"{SIGNAL}.kl":
            yield from _guarded(f"{SIGNAL}.kl.{name}", "kl", function, partial(_kl, target))


def _guarded(
    path: str, stage: Stage, function: Callable[..., Any], make: Callable[..., Iterator[Boundary]]
) -> Iterator[Boundary | Unbound]:
    known = {*COLUMN_OF, *NUMBERS, *CHOICES, "aggregation"}
    strange = [name for name in inspect.signature(function).parameters if name not in known]
    if strange:
        yield Unbound(path, stage, f"{path} wants {strange[0]!r}, of which this adapter does not know the column")
        return
    yield from make(path, function)


def _columns(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(COLUMN_OF[n] for n in inspect.signature(function).parameters if n in COLUMN_OF)


def _numbers(function: Callable[..., Any]) -> dict[str, Scalar]:
    return {n: NUMBERS[n] for n in inspect.signature(function).parameters if n in NUMBERS}


def _claims(function: Callable[..., Any], **more: str) -> dict[str, Claim]:
    said = getattr(inspect.getmodule(function), "CLAIMS", {})
    cite = f"{function.__module__}: CLAIMS and docstring"
    return {key: Claim(value, cite) for key, value in {**said, **more}.items()}


def _given(function: Callable[..., Any], batch: Batch) -> dict[str, Tensor]:
    wanted = [n for n in inspect.signature(function).parameters if n in COLUMN_OF]
    return {n: batch.live if n == "live" else getattr(batch, COLUMN_OF[n]) for n in wanted}


def _estimator(target: Target, path: str, function: Callable[..., Any]) -> Iterator[Boundary]:
    """One boundary, or one for each value of each choice, since a choice decides a claim."""
    numbers = _numbers(function)
    chosen = [n for n in inspect.signature(function).parameters if n in CHOICES]
    variants: list[dict[str, Scalar]] = [{n: v} for n in chosen for v in (True, False)] or [{}]

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return {"advantage": target.call(path, **_given(function, batch), **settings)}

    for variant in variants:
        name = ", ".join(f"{k}={v}" for k, v in variant.items()) or "default"
        more = {CHOICES[k]: "yes" if v else "no" for k, v in variant.items()}
        yield Boundary(
            path=path,
            stage="advantage",
            call=call,
            reads=_columns(function),
            outputs={"advantage": Output("B", "reward", "advantage")},
            settings={name: numbers | variant},
            claims=_claims(function, **more),
        )


def _loss(target: Target, path: str, function: Callable[..., Any]) -> Iterator[Boundary]:
    """One boundary for each mode: the aggregation is a claim too."""

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        numbers = dict(settings)
        mode, parts = str(numbers.pop("aggregation")), int(numbers.pop("micro_batches", 1) or 1)
        count = float(DENOMINATORS[mode](batch).clamp(min=1))
        whole = target.call(f"{SIGNAL}.reduce.Aggregation", mode, count)
        cut = [take_rows(batch, index) for index in torch.arange(batch.rows).chunk(parts)]
        losses = [target.call(path, **_given(function, p), **numbers, aggregation=whole) for p in cut]
        return {"loss": torch.stack(losses).sum()}

    for mode in DENOMINATORS:
        yield Boundary(
            path=path,
            stage="policy-loss",
            call=call,
            reads=_columns(function),
            outputs={"loss": Output("", "", "loss")},
            settings={mode: {**_numbers(function), "aggregation": mode}},
            claims=_claims(function, aggregation=mode),
        )


def _kl(target: Target, path: str, function: Callable[..., Any]) -> Iterator[Boundary]:
    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        return {"kl": target.call(path, **_given(function, batch))}

    yield Boundary(
        path=path,
        stage="kl",
        call=call,
        reads=_columns(function),
        outputs={"kl": Output("B T", "nats", f"kl.{function.__name__}")},
        claims=_claims(function),
    )


FRAMEWORK = Framework(name="rl_sentinel", package="rl_sentinel", distribution="rl-sentinel", boundaries=boundaries)
