"""Boundaries of the library's metrics, each with the definition that its docstring claims."""

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.adapters.library.arguments import NUMBERS, SIGNAL
from rl_sentinel.adapters.library.boundary_builder import bind
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings

METRICS = f"{SIGNAL}.metrics"

#: Statistic -> field of the result, and the text of its definition.
_STATISTICS = {
    "mean": ("mean", "mean"),
    "std": ("deviation", "deviation (n - 1)"),
    "min": ("least", "minimum"),
    "max": ("most", "maximum"),
}

#: Quantity -> its values, the columns that they need, whether they are per row, the unit, and the population.
_OF: Mapping[str, tuple[Callable[[Batch], Tensor], str, bool, str, str]] = {
    "reward": (lambda b: b.reward, "reward", True, "reward", "outcome reward over live rows"),
    "entropy": (lambda b: b.entropy, "entropy", False, "nats", "entropy over trained tokens"),
    "advantage": (lambda b: b.advantage, "advantage", False, "reward", "advantage over trained tokens"),
    "ratio": (
        lambda b: (b.logprob - b.old_logprob).exp(),
        "logprob old_logprob",
        False,
        "ratio",
        "ratio of logprob to old_logprob over trained tokens",
    ),
}

#: Function, columns it reads, setting, the call, and per output (in order): quantity, unit, definition, knobs.
_Row = tuple[
    str,
    str,
    Mapping[str, Settings],
    Callable[[Callable[..., object], Batch, Settings], object],
    Mapping[str, tuple[str, str, str]],
    Mapping[str, str],
]

_ROWS: tuple[_Row, ...] = (
    (
        "clip_fraction",
        "logprob old_logprob advantage mask",
        {  # with clip ranges of 0, a ratio of 1 equals both bounds
            "default": {"clip_low": NUMBERS["clip_low"], "clip_high": NUMBERS["clip_high"]},
            "no room": {"clip_low": 0.0, "clip_high": 0.0},
        },
        lambda f, b, s: f(b.logprob, b.old_logprob, b.advantage, mask=b.mask, **s),
        {
            "tokens": ("clip_fraction", "", "mean of where clipping binds over trained tokens"),
            "sequences": ("sequences_clipped", "", "mean of rows where clipping binds over live rows"),
        },
        {"knob:clip_low": "0.05|0.6", "knob:clip_high": "0.05|0.9"},
    ),
    (
        "mean_kl",
        "logprob ref_logprob mask",
        {"default": {}},
        lambda f, b, _: f(b.logprob, b.ref_logprob, mask=b.mask),
        {
            k: (f"kl.{k}", "nats", f"mean of {k} of logprob against ref_logprob over trained tokens")
            for k in ("k1", "k3")
        },
        {},
    ),
    (
        "effective_sample_size",
        "logprob old_logprob mask",
        {  # a factor on all weights does not change the share; a weight above ``high`` is 0
            "ratios": {"unit": 1.0, "high": math.inf},
            "huge ones": {"unit": 1e25, "high": math.inf},
            "tiny ones, some of them 0": {"unit": 1e-25, "high": 2.0},
        },
        lambda f, b, s: f(_weights(b, s), mask=b.mask),
        {"share": ("effective_sample_size", "", "ratios of logprob to old_logprob over trained tokens")},
        {},
    ),
    (
        "explained_variance",
        "value returns mask",
        {"default": {}},
        lambda f, b, _: f(b.value, b.returns, mask=b.mask),
        {"share": ("explained_variance", "", "of a variance, 0 where it is not defined")},
        {},
    ),
    (
        "dead_group_fraction",
        "reward group mask",
        {"default": {}},
        lambda f, b, _: f(b.reward, group=b.group, live=b.live),
        {"share": ("dead_group_fraction", "", "prompts of live rows")},
        {},
    ),
    (
        "share",
        "scored mask",
        {"default": {}},
        lambda f, b, _: f(~b.scored, mask=b.live),
        {"share": ("unscored", "", "mean of no score over live rows")},
        {},
    ),
)


def boundaries(target: Target) -> Iterator[Boundary]:
    """Boundaries of the statistics of three columns and of the ratio, then the other metrics."""
    for quantity, (_, reads, _, unit, population) in _OF.items():
        yield bind(
            target,
            f"{METRICS}.statistics",
            "metric",
            _statistics,
            reads=f"{reads} mask",
            outputs={n: Output("", unit, f"{quantity}.{n}", over="live") for n in _STATISTICS},
            settings={quantity: {"of": quantity}},
            claims={f"definition:{n}": f"{words} of {population}" for n, (_, words) in _STATISTICS.items()},
        )
    yield from (_metric(target, row) for row in _ROWS)


def _statistics(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    values, _, of_rows, _, _ = _OF[str(settings["of"])]
    record = target.call(f"{METRICS}.statistics", values(batch), mask=batch.live if of_rows else batch.mask)
    return {n: getattr(record, field) for n, (field, _) in _STATISTICS.items()}


def _metric(target: Target, row: _Row) -> Boundary:
    name, reads, settings, call, outputs, knobs = row
    path = f"{METRICS}.{name}"

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        result = call(lambda *columns, **more: target.call(path, *columns, **more), batch, settings)
        return dict(zip(outputs, result if isinstance(result, tuple) else (result,), strict=True))

    return bind(
        target,
        path,
        "metric",
        compute,
        reads=reads,
        outputs={n: Output("", unit, quantity, over="live") for n, (quantity, unit, _) in outputs.items()},
        settings=settings,
        claims={**{f"definition:{n}": words for n, (_, _, words) in outputs.items()}, **knobs},
    )


def _weights(batch: Batch, settings: Settings) -> Tensor:
    ratio = (batch.logprob - batch.old_logprob).exp()
    return torch.where(ratio <= float(settings["high"] or 0), ratio * float(settings["unit"] or 0), 0.0)
