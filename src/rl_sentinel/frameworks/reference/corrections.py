"""Boundaries of rollout correction: weights, their bounds, and what is kept; each of a way of calling it."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims_from_text
from rl_sentinel.core.modules import defined
from rl_sentinel.frameworks.reference.arguments import SIGNAL, claims, columns, given, numbers, unknown
from rl_sentinel.frameworks.reference.refusals import of_numbers, of_words
from rl_sentinel.frameworks.reference.rewards import functions
from rl_sentinel.frameworks.target import Target

PACKAGE = f"{SIGNAL}.correction"
KEPT = f"{PACKAGE}.trust.off_policy_sequences_kept"
FRACTION = f"{PACKAGE}.trust.rejected_fraction"

#: Parameter that is a word -> what it may be; each word is audited once with one of the other parameter's.
_WORDS: Mapping[str, tuple[str, ...]] = {"estimator": ("k1", "k2", "k3"), "over": ("sum", "mean", "max")}

#: Bounds on an estimate, in nats, and values of them that matter; estimates stand at these exactly.
_BOUNDS: Settings = {"low": -0.337, "high": 0.337}
_KNOBS = {"knob:high": "0.25|1.0", "knob:low": "-0.25|0.03125"}

#: Level of a weight that is bounded -> the function that makes it.
_LEVELS = {"token": f"{PACKAGE}.weights.token_weights", "sequence": f"{PACKAGE}.weights.sequence_weights"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Every public function of the package, at each of its words, and all that it refuses."""
    for module in defined(target.module(PACKAGE), "CLAIMS"):
        for path, function in functions(target.module(f"{PACKAGE}.{module}")):
            if "weight" in inspect.signature(function).parameters:
                yield from _of_weights(target, path, function)
            elif path != FRACTION:
                yield from _of_columns(target, path, function)
    yield _per_response(target)
    yield _fraction(target)
    wrong = {"sound": 1.0, "denominator 0": 0.0, "denominator negative": -1.0}
    live = torch.ones(2).bool()
    yield from of_words(FRACTION, lambda s: target.call(FRACTION, live, live=live, denominator=wrong[s]), wrong)


def _words(function: Callable[..., Any]) -> list[dict[str, Scalar]]:
    found: list[dict[str, Scalar]] = [{}]
    for name, words in _WORDS.items():
        if name in inspect.signature(function).parameters:
            found = [{**one, name: word} for one, word in zip(cycle(found), words, strict=False)]
    return found


def _of_columns(target: Target, path: str, function: Callable[..., Any]) -> Iterator[Boundary | Unbound]:
    every = _words(function)
    strange = unknown(partial(function, **every[0]))
    if strange and strange not in every[0]:
        yield Unbound(path, "correct", f"{path} wants {strange!r}, of which this adapter does not know the column")
        return
    for words in every:
        plain = numbers(function) | (dict(_BOUNDS) if words else {})
        yield _boundary(target, path, function, {**words, **plain}, ", ".join(map(str, words.values())) or "default")
    first = {**every[0], **(_BOUNDS if every[0] else {})}
    if not every[0]:
        yield from of_numbers(target, path, function)
        return
    nonsense: dict[str, Settings] = {"sound": {}, "bounds exchanged": {"low": 1.0}, "bound nan": {"high": torch.nan}}
    nonsense |= {f"an unknown {name}": {name: "k4"} for name in every[0]}
    batch = given(function, batch_of(torch.ones(1, 2).bool()))
    yield from of_words(path, lambda s: target.call(path, **{**batch, **first, **nonsense[s]}), nonsense)


def _boundary(target: Target, path: str, function: Callable[..., Any], settings: Settings, name: str) -> Boundary:
    output, quantity = _output(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        columns_given = given(function, batch)
        columns_given["logprob"] = columns_given["logprob"].detach().clone().requires_grad_()
        found = target.call(path, **columns_given, **settings)
        return {quantity: found.detach().float(), "requires_grad": torch.tensor(float(found.requires_grad))}

    flag = {"requires_grad": Output("", "", "requires_grad")}
    said = dict(_KNOBS) if "estimator" in settings else {}
    more = claims(function, algorithm=function.__name__.replace("_", " "), weights="constant")
    return Boundary(
        path=path,
        stage="correct",
        call=call,
        reads=columns(function),
        outputs={quantity: output, **flag},
        settings={name: settings},
        claims=more | claims_from_text(said, f"{function.__module__}: CLAIMS and docstring"),
    )


def _output(function: Callable[..., Any]) -> tuple[Output, str]:
    """What a function hands back, by its annotation: facts are decisions, numbers weights or log-ratios."""
    found = inspect.signature(function).return_annotation
    axes = " ".join(found.dim_str.split()).replace("*S", "B T")  # as stored, which is padded here
    scope = "sequence" if axes == "B" else "token"
    if "bool" in found.dtypes:
        return Output(axes, "", "keep", scope), "keep"  # type: ignore[arg-type] # one of two words
    name = "log_ratio" if function.__name__ == "log_ratios" else "weight"
    return Output(axes, "nats" if name == "log_ratio" else "ratio", name, scope), name  # type: ignore[arg-type]


def _of_weights(target: Target, path: str, function: Callable[..., Any]) -> Iterator[Boundary]:
    for level, made in _LEVELS.items():
        yield _bounded(target, path, function, level, made)
    sound = {"weight": torch.ones(2, 2), "mask": torch.ones(2, 2).bool()}
    yield from of_numbers(target, path, function, **sound)
    wrong = {"sound": 1.0, "weight nan": torch.nan, "weight negative": -1.0}
    wrong |= {"weight infinite": torch.inf} if not numbers(function) else {}
    first = torch.tensor([[True, False], [False, False]])

    def call(setting: str) -> object:
        changed = sound["weight"].masked_fill(first, wrong[setting])
        return target.call(path, **sound | {"weight": changed}, **numbers(function))

    yield from of_words(path, call, wrong)


def _bounded(target: Target, path: str, function: Callable[..., Any], level: str, made: str) -> Boundary:
    name = function.__name__.replace("_", " ").replace("clipped", "clipped weights")
    weights = _boundary(target, made, target.find(made), {}, level)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        weight = target.call(made, batch.logprob, batch.rollout_logprob, mask=batch.mask)
        kept = batch.mask if level == "token" else batch.live
        anything = torch.where(kept, weight, torch.nan).requires_grad_()  # off the mask, and with a gradient to lose
        knobs = {n: v for n, v in settings.items() if n != "level"}
        found = target.call(path, anything, mask=kept, **knobs)
        return {"weight": found.detach(), "requires_grad": torch.tensor(float(found.requires_grad))}

    return replace(
        weights,
        path=f"{made} -> {path}",
        call=call,
        settings={level: {"level": level, **numbers(function)}},
        claims=claims(function, algorithm=name),
    )


def _per_response(target: Target) -> Boundary:
    """OPSM with one advantage for each response, as outcome estimators give it."""
    function = target.find(KEPT)
    plain = _boundary(target, KEPT, function, numbers(function), "per response")

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        knobs = {n: v for n, v in settings.items() if n != "per_response"}
        found = target.call(KEPT, batch.logprob, batch.old_logprob, batch.reward, mask=batch.mask, **knobs)
        return {"keep": found.float()}

    return replace(
        plain,
        call=call,
        reads=(plain.reads - {"advantage"}) | {"reward"},
        outputs={"keep": plain.outputs["keep"]},
        settings={"per response": {**plain.settings["per response"], "per_response": True}},
    )


def _fraction(target: Target) -> Boundary:
    """The share of responses that OPSM drops, each counted once."""
    plain = _boundary(target, KEPT, target.find(KEPT), numbers(target.find(KEPT)), "default")

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        keep = target.call(KEPT, **given(target.find(KEPT), batch), **settings)
        count = float(batch.live.sum().clamp(min=1))
        return {"rejected": target.call(FRACTION, keep, live=batch.live, denominator=count)}

    return replace(
        plain,
        path=f"{KEPT} -> {FRACTION}",
        call=call,
        outputs={"rejected": Output("", "", "rejected_fraction", over="live")},
        claims=plain.claims | claims(target.find(FRACTION), algorithm="rejected fraction"),
    )
