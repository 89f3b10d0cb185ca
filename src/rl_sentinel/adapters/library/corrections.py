"""Boundaries of rollout correction: log-ratios, importance weights, their bounds, rejection masks, staleness."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import NUMBERS, SIGNAL, arguments, columns, numbers, unbound, without
from rl_sentinel.adapters.library.boundary_builder import REQUIRES_GRAD, bind, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.modules import defined

PACKAGE = f"{SIGNAL}.correction"
KEPT = f"{PACKAGE}.trust.off_policy_sequences_kept"
FRACTION = f"{PACKAGE}.trust.rejected_fraction"
STALENESS = f"{SIGNAL}.staleness.staleness"
FRESH = f"{SIGNAL}.staleness.fresh_rows"

#: String parameter -> its values; each value is audited once.
_WORDS: Mapping[str, tuple[str, ...]] = {"estimator": ("k1", "k2", "k3"), "over": ("sum", "mean", "max")}

#: Bounds on an estimate, in nats, and pairs of values that must differ; estimates of small batches equal them exactly.
_BOUNDS: Settings = {"low": -0.337, "high": 0.337}
_KNOBS = {"knob:high": "0.25|1.0", "knob:low": "-0.25|0.03125"}

#: Level of a weight -> the function that computes it.
_LEVELS = {"token": f"{PACKAGE}.weights.token_weights", "sequence": f"{PACKAGE}.weights.sequence_weights"}

_REJECTED = {"rejected": Output("", "", "rejected_fraction", over="live")}

_STALE = {"mean": "mean updates behind", "most": "most updates behind", "mixed": "share of rows of several versions"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each public function of the package, per value of its string parameters; and of staleness.

    A function with an unknown parameter becomes an ``Unbound``.
    """
    for module in defined(target.module(PACKAGE), "CLAIMS"):
        for path, function in functions(target.module(f"{PACKAGE}.{module}")):
            if "weight" in inspect.signature(function).parameters:
                yield from (_bounds(target, path, function, level, source) for level, source in _LEVELS.items())
            elif path != FRACTION:
                yield from _column_boundaries(target, path, function)
    kept = target.find(KEPT)
    threshold = numbers(kept)
    yield bind(
        target,
        KEPT,
        "correct",
        _keep_by_outcome,
        reads="logprob old_logprob reward mask",
        outputs={"keep": _output(kept)[0]},
        settings={"per response": {**threshold, "per_response": True}},
        claims={"algorithm": "off policy sequences kept", "weights": "constant"},
    )
    yield bind(
        target,
        f"{KEPT} -> {FRACTION}",
        "correct",
        _rejected_fraction,
        reads=columns(kept),
        outputs=_REJECTED,
        settings={"default": threshold},
        claims={"algorithm": "rejected fraction", "weights": "constant"},
        claims_of=KEPT,
    )
    now: Settings = {"current": NUMBERS["current"]}
    yield bind(
        target,
        STALENESS,
        "correct",
        _staleness,
        reads="version mask",
        outputs={n: Output("", "", f"staleness.{n}", over="live") for n in _STALE},
        settings={"default": now},
        claims={f"algorithm:{n}": words for n, words in _STALE.items()},
    )
    yield bind(
        target,
        FRESH,
        "correct",
        lambda target, batch, settings: {"keep": target.call(FRESH, batch.version, mask=batch.mask, **settings)},
        reads="version mask",
        outputs={"keep": Output("B", "", "keep", "sequence")},
        settings={"default": {"most": 3.0, **now}},
        claims={"algorithm": "fresh rows"},
    )


def _string_arguments(function: Callable[..., Any]) -> list[dict[str, Scalar]]:
    combined: list[dict[str, Scalar]] = [{}]
    for name, words in _WORDS.items():
        if name in inspect.signature(function).parameters:
            combined = [{**one, name: word} for one, word in zip(cycle(combined), words, strict=False)]
    return combined


def _column_boundaries(target: Target, path: str, function: Callable[..., Any]) -> Iterator[Boundary | Unbound]:
    combinations = _string_arguments(function)
    if missing := unbound(path, "correct", function, tuple(combinations[0])):
        yield missing
        return
    output, quantity = _output(function)

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        passed = arguments(function, batch)
        passed["logprob"] = passed["logprob"].detach().clone().requires_grad_()
        result = target.call(path, **passed, **settings)
        return {quantity: result.detach().float(), "requires_grad": torch.tensor(float(result.requires_grad))}

    for words in combinations:
        yield bind(
            target,
            path,
            "correct",
            compute,
            reads=columns(function),
            outputs={quantity: output, "requires_grad": REQUIRES_GRAD},
            settings={
                ", ".join(map(str, words.values())) or "default": {**words, **numbers(function), **_BOUNDS}
                if words
                else numbers(function)
            },
            claims={
                "algorithm": function.__name__.replace("_", " "),
                "weights": "constant",
                **(_KNOBS if "estimator" in words else {}),
            },
            kernels=True,
        )


def _output(function: Callable[..., Any]) -> tuple[Output, str]:
    """The output and its name, by the annotation of the result.

    A boolean is a keep mask; a float is a weight or a log-ratio.
    """
    annotation = inspect.signature(function).return_annotation
    axes = " ".join(annotation.dim_str.split()).replace("*S", "B T")  # *S is padded here
    scope = "sequence" if axes == "B" else "token"
    if "bool" in annotation.dtypes:
        return Output(axes, "", "keep", scope), "keep"  # type: ignore[arg-type] # one of two words
    name = "log_ratio" if function.__name__ == "log_ratios" else "weight"
    return Output(axes, "nats" if name == "log_ratio" else "ratio", name, scope), name  # type: ignore[arg-type]


def _bounds(target: Target, path: str, function: Callable[..., Any], level: str, source: str) -> Boundary:
    """The boundary of a bound on importance weights, which are NaN off the mask and have a gradient to detach."""

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        weight = target.call(source, batch.logprob, batch.rollout_logprob, mask=batch.mask)
        mask = batch.mask if level == "token" else batch.live
        leaf = torch.where(mask, weight, torch.nan).requires_grad_()
        bounded = target.call(path, leaf, mask=mask, **without(settings, "level"))
        return {"weight": bounded.detach(), "requires_grad": torch.tensor(float(bounded.requires_grad))}

    return bind(
        target,
        f"{source} -> {path}",
        "correct",
        compute,
        reads=columns(target.find(source)),
        outputs={"weight": _output(target.find(source))[0], "requires_grad": REQUIRES_GRAD},
        settings={level: {"level": level, **numbers(function)}},
        claims={"algorithm": function.__name__.replace("_", " ").replace("clipped", "clipped weights")},
    )


def _keep_by_outcome(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """Off-policy sequence masking with one advantage per response, as outcome estimators return it."""
    plain = without(settings, "per_response")
    keep = target.call(KEPT, batch.logprob, batch.old_logprob, batch.reward, mask=batch.mask, **plain)
    return {"keep": keep.float()}


def _rejected_fraction(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    keep = target.call(KEPT, **arguments(target.find(KEPT), batch), **settings)
    count = float(batch.live.sum().clamp(min=1))
    return {"rejected": target.call(FRACTION, keep, live=batch.live, denominator=count)}


def _staleness(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    stale = target.call(STALENESS, batch.version, mask=batch.mask, **settings)
    return {n: getattr(stale, n) for n in _STALE}
