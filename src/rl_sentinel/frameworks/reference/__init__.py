"""The signal library itself: boundaries for each estimator, loss, KL and part that a walk finds."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.modules import defined
from rl_sentinel.frameworks.framework import Framework
from rl_sentinel.frameworks.reference import (
    corrections,
    decisions,
    held,
    kls,
    layouts,
    metrics,
    nonsense,
    paths,
    records,
    rewards,
    storage,
    tokens,
)
from rl_sentinel.frameworks.reference.arguments import (
    CHOICES,
    SIGNAL,
    certain,
    choices,
    claims,
    columns,
    families,
    given,
    numbers,
    unknown,
)
from rl_sentinel.frameworks.reference.chosen import CHOOSERS, RANKED, chosen, knobs_of
from rl_sentinel.frameworks.reference.chosen import settings_of as choosing
from rl_sentinel.frameworks.reference.copies import import_from
from rl_sentinel.frameworks.reference.parts import (
    MODE,
    aggregations,
    alignments,
    in_parts,
    loss_output,
    settings_of,
)
from rl_sentinel.frameworks.reference.refusals import of_numbers, of_parts, refusals
from rl_sentinel.frameworks.target import Target


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Whatever the packages of the signal library define, in the tree that is audited."""
    import_from(target.root)
    for name, function in defined(target.module(f"{SIGNAL}.advantage"), "advantages").items():
        yield from _guarded(f"{SIGNAL}.advantage.{name}.advantages", "advantage", function, partial(_estimator, target))
    for name, function in defined(target.module(f"{SIGNAL}.loss"), "loss").items():
        yield from _guarded(f"{SIGNAL}.loss.{name}.loss", "policy-loss", function, partial(_loss, target))
    yield from kls.boundaries(target)
    yield from corrections.boundaries(target)
    path = f"{SIGNAL}.value.value_loss"
    yield from _guarded(path, "value-loss", target.find(path), partial(_loss, target, stage="value-loss"))
    yield from tokens.boundaries(target)
    yield from layouts.boundaries(target)
    yield from rewards.boundaries(target)
    yield from paths.boundaries(target)
    yield from records.boundaries(target)
    yield from storage.boundaries(target)
    yield from metrics.boundaries(target)
    yield from aggregations(target)
    yield from alignments(target)
    yield from of_parts(target)
    yield from nonsense.boundaries(target)
    yield from decisions.boundaries(target)
    yield from held.boundaries(target)


def _guarded(
    path: str, stage: Stage, function: Callable[..., Any], make: Callable[..., Iterator[Boundary]]
) -> Iterator[Boundary | Unbound]:
    strange = unknown(function)
    if strange and not (strange == "chosen" and path.split(".")[-2] in CHOOSERS):
        yield Unbound(path, stage, f"{path} wants {strange!r}, of which this adapter does not know the column")
        return
    yield from make(path, function)


def _estimator(target: Target, path: str, function: Callable[..., Any]) -> Iterator[Boundary]:
    """One boundary, or one for each value of each choice, since a choice decides a claim; then the refusals."""
    chosen = choices(function)
    variants: list[dict[str, Scalar]] = [{n: v} for n in chosen for v in (True, False)] or [{}]

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        rest = {n: v for n, v in settings.items() if n != "certain"}
        seen = certain(batch) if settings.get("certain") else batch
        return {"advantage": target.call(path, **given(function, seen), **rest)}

    if "pi_squared" in inspect.signature(function).parameters:
        variants.append({"certain": True})
    for variant in variants:
        name = ", ".join(f"{k}={v}" for k, v in variant.items()) or "default"
        more = {CHOICES[k]: "yes" if v else "no" for k, v in variant.items() if k in CHOICES}
        yield Boundary(
            path=path,
            stage="advantage",
            call=call,
            reads=columns(function),
            outputs={"advantage": Output(_axes(function), "reward", "advantage")},
            settings=families(function, name, variant),
            claims=claims(function, **more),
        )
    yield from refusals(target, path, function)
    yield from of_numbers(target, path, function)


def _axes(function: Callable[..., Any]) -> str:
    """Advantages of an outcome stay one number per row; those that read tokens are per token."""
    return "B T" if "mask" in inspect.signature(function).parameters else "B"


def _loss(
    target: Target, path: str, function: Callable[..., Any], *, stage: Stage = "policy-loss"
) -> Iterator[Boundary]:
    """One boundary: the aggregation, which is a claim too, is audited at each mode by itself."""
    wanted, name = numbers(function), path.split(".")[-2]

    def one(batch: Batch, **more: object) -> Tensor:
        found: Tensor = target.call(path, **given(function, batch), **more)
        return found

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        apart = chosen(target, name, batch, settings)
        return in_parts(target, batch, settings, one, **{n: settings[n] for n in wanted}, **apart)

    yield Boundary(
        path=path,
        stage=stage,
        call=call,
        reads=columns(function),
        outputs={"loss": Output("", "", "loss") if name in RANKED else loss_output(MODE)},
        settings={MODE: {**wanted, **choosing(name), **settings_of(MODE)}},
        claims=claims(function, aggregation=MODE) | knobs_of(name),
    )
    every = {"chosen": torch.ones(2, 2).bool()} if name in CHOOSERS else {}
    yield from of_numbers(target, path, function, **every)


FRAMEWORK = Framework(name="rl_sentinel", package="rl_sentinel", distribution="rl-sentinel", boundaries=boundaries)
