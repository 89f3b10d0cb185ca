"""Boundaries of the library's losses and their aggregation, split into micro-batches and ranks if possible."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import (
    PACKED,
    SIGNAL,
    arguments,
    columns,
    numbers,
    packed_arguments,
    unbound,
)
from rl_sentinel.adapters.library.boundary_builder import bind
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.layout import Axis
from rl_sentinel.core.modules import defined

AGGREGATE = f"{SIGNAL}.reduce.aggregate"
DENOMINATOR = f"{SIGNAL}.minibatches.aggregation"
BLOCKS = f"{SIGNAL}.kernels.blocks"
COVARIANCE = f"{SIGNAL}.covariance"

#: Fixed length by which ``token-sum`` divides, in tokens.
LENGTH = 8

#: Aggregation mode -> denominator for the whole mini-batch; for ``prompt-mean``, the library computes it.
DENOMINATORS: Mapping[str, Callable[[Batch], Tensor]] = {
    "token-mean": lambda b: b.mask.sum(),
    "sequence-mean-token-mean": lambda b: b.live.sum(),
    "sequence-mean-token-sum": lambda b: b.live.sum(),
    "token-sum": lambda b: LENGTH * b.live.sum(),
}
PROMPTS = "prompt-mean"
MODES = (*DENOMINATORS, PROMPTS)

#: The mode with which each loss is audited; the aggregation itself is audited in every mode.
MODE = "sequence-mean-token-mean"

#: Modes whose denominator the library counts from the mask alone.
_COUNTED = ("token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum")

#: Loss -> the function that chooses its tokens, setting -> parameter, and further arguments.
CHOOSERS: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, object]]] = {
    "kl_cov": ("largest", {"share": "share"}, {}),
    "clip_cov": ("drawn_between", {"share": "share", "cov_low": "low", "cov_high": "high"}, {"generator": None}),
}

#: Loss -> the numbers of its choice. A share of 1 draws all candidates, so the choice is not random.
_CHOSEN_BY: Mapping[str, Settings] = {
    "kl_cov": {"share": 0.4},
    "clip_cov": {"share": 1.0, "cov_low": -0.1953125, "cov_high": 3.0},
}

#: Loss -> pairs of values that must give different results; covariances of small batches equal the bounds exactly.
_CHOICE_KNOBS: Mapping[str, Mapping[str, str]] = {
    "kl_cov": {"knob:share": "0.2|0.8"},
    "clip_cov": {"knob:cov_low": "-0.1953125|0.05", "knob:cov_high": "-0.0703125|3.0"},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of every loss, one loss of packed tokens, block-wise sums, and the aggregation in each mode.

    A loss with an unknown parameter becomes an ``Unbound``.
    """
    for name, function in defined(target.module(f"{SIGNAL}.loss"), "loss").items():
        yield _loss(target, f"{SIGNAL}.loss.{name}.loss", name, function, "policy-loss")
    value = f"{SIGNAL}.value.value_loss"
    yield _loss(target, value, "value", target.find(value), "value-loss")
    yield _packed_loss(target, f"{SIGNAL}.loss.gspo.loss")
    for mode in MODES:
        yield from (_blocks(target, mode, stored) for stored in ("padded", "packed"))
        yield bind(
            target,
            AGGREGATE,
            "aggregate",
            _aggregate,
            reads=f"advantage mask {columns_of_mode(mode)}",
            outputs={"loss": LOSS_OUTPUT},
            settings={mode: settings_of(mode)},
            claims={"aggregation": mode, "denominator": "given", "mean": "yes", "masked-slots": "any"},
            follows=CUT,
        )
    for mode in _COUNTED:
        yield bind(
            target,
            f"{DENOMINATOR} -> {AGGREGATE}",
            "aggregate",
            _aggregate_with_counted_denominator,
            reads="advantage mask",
            outputs={"loss": LOSS_OUTPUT},
            settings={mode: settings_of(mode)},
            claims={"aggregation": mode, "mean": "yes", "masked-slots": "any"},
        )


#: The rows of a mini-batch are split into ranks and micro-batches, whose losses are added.
CUT: frozenset[Axis] = frozenset({"micro_batches", "ranks"})


#: The loss as an output; rows without a trained token do not change it.
LOSS_OUTPUT = Output("", "", "loss", over="live")


def settings_of(mode: str) -> Settings:
    """The settings of an aggregation mode."""
    return {"aggregation": mode} | ({"length": LENGTH} if mode == "token-sum" else {})


def columns_of_mode(mode: str) -> str:
    """The columns that an aggregation mode reads besides the mask."""
    return "group" if mode == PROMPTS else ""


def in_parts(
    target: Target, batch: Batch, settings: Settings, loss: Callable[..., Tensor], **numbers: object
) -> dict[str, Tensor]:
    """The sum of the losses of all ranks and micro-batches, with denominators and chosen tokens of the mini-batch."""
    mode, parts = str(settings["aggregation"]), int(settings["ranks"] or 1) * int(settings["micro_batches"] or 1)
    whole = _mini_batch_aggregation(target, mode, batch)
    chosen = numbers.pop("chosen", None)
    summands = []
    for rows in torch.arange(batch.rows).chunk(parts):
        chosen_rows = {"chosen": chosen[rows]} if isinstance(chosen, Tensor) else {}
        summands.append(loss(take_rows(batch, rows), **numbers, **chosen_rows, aggregation=whole.of_rows(rows)))
    return {"loss": torch.stack(summands).sum()}


def _mini_batch_aggregation(target: Target, mode: str, batch: Batch) -> Any:  # noqa: ANN401 - a class of the tree under audit
    if mode == PROMPTS:
        return target.call(DENOMINATOR, mode, mask=batch.mask, group=batch.group)
    return target.call(f"{SIGNAL}.reduce.Aggregation", mode, float(DENOMINATORS[mode](batch).clamp(min=1)))


def chosen_tokens(target: Target, name: str, batch: Batch, settings: Settings) -> dict[str, Tensor]:
    """The tokens of the mini-batch that a loss treats differently; empty for other losses."""
    if name not in CHOOSERS:
        return {}
    choose, parameters, more = CHOOSERS[name]
    covariance = target.call(f"{COVARIANCE}.covariances", batch.logprob, batch.advantage, mask=batch.mask)
    bounds = {parameter: settings[n] for n, parameter in parameters.items()}
    return {"chosen": target.call(f"{COVARIANCE}.{choose}", covariance, mask=batch.mask, **bounds, **more)}


def _loss(target: Target, path: str, name: str, function: Callable[..., Any], stage: Stage) -> Boundary | Unbound:
    if missing := unbound(path, stage, function, ("chosen",) if name in CHOOSERS else ()):
        return missing
    plain = numbers(function)

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        passed = {n: settings[n] for n in plain} | chosen_tokens(target, name, batch, settings)
        return in_parts(
            target, batch, settings, lambda b, **more: target.call(path, **arguments(function, b), **more), **passed
        )

    return bind(
        target,
        path,
        stage,
        compute,
        reads=columns(function),
        # kl_cov rounds its share: a batch twice as large chooses other tokens, so no population is declared.
        outputs={"loss": Output("", "", "loss") if name == "kl_cov" else LOSS_OUTPUT},
        settings={MODE: {**plain, **_CHOSEN_BY.get(name, {}), **settings_of(MODE)}},
        claims={"aggregation": MODE, **_CHOICE_KNOBS.get(name, {})},
        follows=CUT,
        kernels=stage == "policy-loss",
    )


def _packed_loss(target: Target, path: str) -> Boundary:
    function = target.find(path)

    def one(batch: Batch, **more: object) -> Tensor:
        loss: Tensor = target.call(path, **packed_arguments(target, function, batch), **more)
        return loss

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return in_parts(target, batch, settings, one, **{n: settings[n] for n in numbers(function)})

    return bind(
        target,
        f"{PACKED} -> {path}",
        "policy-loss",
        compute,
        reads=f"{columns(function)} length",
        outputs={"loss": LOSS_OUTPUT},
        settings={MODE: {**numbers(function), **settings_of(MODE)}},
        claims={"aggregation": MODE},
        follows=CUT,
        kernels=True,
    )


def _aggregate(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    def one(part: Batch, **more: object) -> Tensor:
        loss: Tensor = target.call(AGGREGATE, part.advantage, mask=part.mask, **more)
        return loss

    return in_parts(target, batch, settings, one)


def _aggregate_with_counted_denominator(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    by = target.call(DENOMINATOR, settings["aggregation"], mask=batch.mask, length=None)
    return {"loss": target.call(AGGREGATE, batch.advantage, mask=batch.mask, aggregation=by)}


def _blocks(target: Target, mode: str, stored: str) -> Boundary:
    """A loss summed in blocks; the summand returns its value and its derivative, which are equal here."""
    function, path = target.find(f"{SIGNAL}.loss.importance_sampling.loss"), f"{BLOCKS}.summed"

    def summand(mask: Tensor, logprob: Tensor, old_logprob: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.where(mask, -advantage * torch.exp(logprob - old_logprob), 0.0)
        return value, value

    def one(batch: Batch, *, aggregation: object) -> Tensor:
        packed = stored == "packed"
        passed: dict[str, Any] = {
            **(packed_arguments(target, function, batch) if packed else arguments(function, batch))
        }
        values = [torch.nan_to_num(passed[n]) for n in ("logprob", "old_logprob", "advantage")]
        total: Tensor = target.call(path, summand, *values, mask=passed["mask"], aggregation=aggregation)
        return total

    return bind(
        target,
        path,
        "policy-loss",
        lambda target, batch, settings: in_parts(target, batch, settings, one),
        reads=f"{columns(function)} length {columns_of_mode(mode)}",
        outputs={"loss": LOSS_OUTPUT},
        settings={f"{mode}, {stored}": {**settings_of(mode), "stored": stored}},
        claims={"aggregation": mode},
        claims_of=f"{SIGNAL}.loss.importance_sampling.loss",
        follows=CUT,
        kernels=True,
    )
