"""Boundaries of metrics: each function of a raw batch, with the name by which its definition is known."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.reference.arguments import NUMBERS, SIGNAL, claims, given
from rl_sentinel.frameworks.target import Target

METRICS = f"{SIGNAL}.metrics"
STATISTICS = f"{METRICS}.statistics"

#: Quantity -> column, whether it has one number per row, and its unit.
_OF: Mapping[str, tuple[str, bool, str]] = {
    "reward": ("reward", True, "reward"),
    "entropy": ("entropy", False, "nats"),
    "advantage": ("advantage", False, "reward"),
}

#: Last word of a quantity -> the statistic, and the words of its definition.
_WORDS = {
    "mean": ("mean", "mean"),
    "std": ("deviation", "deviation (n - 1)"),
    "min": ("least", "minimum"),
    "max": ("most", "maximum"),
}

#: Quantity -> whose statistics they are, by their definition.
_WHOSE = {
    "reward": "outcome reward over live rows",
    "entropy": "entropy over trained tokens",
    "advantage": "advantage over trained tokens",
    "ratio": "ratio of logprob to old_logprob over trained tokens",
}

#: Setting -> the range that ratios are held to; with no room at all, a ratio of 1 stands at both bounds.
_CLIPS: Mapping[str, Settings] = {
    "default": {"clip_low": NUMBERS["clip_low"], "clip_high": NUMBERS["clip_high"]},
    "no room": {"clip_low": 0.0, "clip_high": 0.0},
}

#: Setting -> what each weight is multiplied by, which changes no share, and the weight above which it is 0.
_WEIGHED: Mapping[str, Settings] = {
    "ratios": {"unit": 1.0, "high": math.inf},
    "huge ones": {"unit": 1e25, "high": math.inf},
    "tiny ones, some of them 0": {"unit": 1e-25, "high": 2.0},
}


def boundaries(target: Target) -> Iterator[Boundary]:
    """Statistics of three columns and of the ratio, then each of the others."""
    for quantity in (*_OF, "ratio"):
        yield _statistics(target, quantity)
    yield _clipped(target)
    means = {k: (f"kl.{k}", f"mean of {k} of logprob against ref_logprob over trained tokens") for k in ("k1", "k3")}
    yield _metric(target, "mean_kl", ("logprob", "ref_logprob"), means, unit="nats")
    yield _sample_size(target)
    explained = {"share": ("explained_variance", "of a variance, 0 where there is none")}
    yield _metric(target, "explained_variance", ("value", "returns"), explained)
    yield _rows(
        target,
        "dead_group_fraction",
        {"reward", "group", "mask"},
        lambda b: target.call(f"{METRICS}.dead_group_fraction", b.reward, group=b.group, live=b.live),
        "prompts of live rows",
    )
    yield from _staleness(target)
    without = _rows(
        target,
        "share",
        {"scored", "mask"},
        lambda b: target.call(f"{METRICS}.share", ~b.scored, mask=b.live),
        "mean of no score over live rows",
    )
    yield replace(without, outputs={"share": Output("", "", "unscored", over="live")})


def _statistics(target: Target, quantity: str) -> Boundary:
    column, of_rows, unit = _OF.get(quantity, ("", False, "ratio"))
    whose = _WHOSE[quantity]

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        values = getattr(batch, column) if column else (batch.logprob - batch.old_logprob).exp()
        found = target.call(STATISTICS, values, mask=batch.live if of_rows else batch.mask)
        return {word: getattr(found, name) for word, (name, _) in _WORDS.items()}

    reads = {column} if column else {"logprob", "old_logprob"}
    return Boundary(
        path=STATISTICS,
        stage="metric",
        call=call,
        reads=frozenset(reads | {"mask"}),
        outputs={word: Output("", unit, f"{quantity}.{word}", over="live") for word in _WORDS},
        settings={quantity: {"of": quantity}},
        claims=claims(target.find(STATISTICS), **_pinned({n: f"{w} of {whose}" for n, (_, w) in _WORDS.items()})),
    )


def _clipped(target: Target) -> Boundary:
    path = f"{METRICS}.clip_fraction"

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        columns = (batch.logprob, batch.old_logprob, batch.advantage)
        found = target.call(path, *columns, mask=batch.mask, **settings)
        return {"tokens": found.tokens, "sequences": found.sequences}

    return Boundary(
        path=path,
        stage="metric",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "advantage", "mask"}),
        outputs={
            "tokens": Output("", "", "clip_fraction", over="live"),
            "sequences": Output("", "", "sequences_clipped", over="live"),
        },
        settings=_CLIPS,
        claims=claims(
            target.find(path),
            **{"knob:clip_low": "0.05|0.6", "knob:clip_high": "0.05|0.9"},
            **_pinned(
                {
                    "tokens": "mean of where clipping binds over trained tokens",
                    "sequences": "mean of rows where clipping binds over live rows",
                }
            ),
        ),
    )


def _pinned(definitions: Mapping[str, str]) -> dict[str, str]:
    """By output: which of the accepted definitions it is, as its docstring says."""
    return {f"definition:{name}": words for name, words in definitions.items()}


def _metric(
    target: Target, name: str, columns: tuple[str, ...], quantities: Mapping[str, tuple[str, str]], *, unit: str = ""
) -> Boundary:
    """A function of token columns and their mask; of each output its quantity and definition."""
    path = f"{METRICS}.{name}"

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        given = [getattr(batch, column) for column in columns]
        found = target.call(path, *given, mask=batch.mask)
        return dict(zip(quantities, found if isinstance(found, tuple) else (found,), strict=True))

    return Boundary(
        path=path,
        stage="metric",
        call=call,
        reads=frozenset({*columns, "mask"}),
        outputs={n: Output("", unit, q, over="live") for n, (q, _) in quantities.items()},
        claims=claims(target.find(path), **_pinned({n: words for n, (_, words) in quantities.items()})),
    )


def _sample_size(target: Target) -> Boundary:
    """Of the ratios of two policies, those above a bound made 0, in any unit."""
    path = f"{METRICS}.effective_sample_size"

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        ratio = (batch.logprob - batch.old_logprob).exp()
        weight = torch.where(ratio <= float(settings["high"] or 0), ratio * float(settings["unit"] or 0), 0.0)
        return {"share": target.call(path, weight, mask=batch.mask)}

    return Boundary(
        path=path,
        stage="metric",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "mask"}),
        outputs={"share": Output("", "", "effective_sample_size", over="live")},
        settings=_WEIGHED,
        claims=claims(target.find(path), **_pinned({"share": "ratios of logprob to old_logprob over trained tokens"})),
    )


def _staleness(target: Target) -> Iterator[Boundary]:
    """Updates behind, and the decision on them."""
    path, decided = f"{SIGNAL}.staleness.staleness", f"{SIGNAL}.staleness.fresh_rows"
    now: Settings = {"current": NUMBERS["current"]}

    def told(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        found = target.call(path, **given(target.find(path), batch), **settings)
        return {"mean": found.mean, "most": found.most, "mixed": found.mixed}

    def keep(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return {"keep": target.call(decided, **given(target.find(decided), batch), **settings)}

    reads = frozenset({"version", "mask"})
    said = {"mean": "mean updates behind", "most": "most updates behind", "mixed": "share of rows of several versions"}
    yield Boundary(
        path=path,
        stage="correct",
        call=told,
        reads=reads,
        outputs={n: Output("", "", f"staleness.{n}", over="live") for n in said},
        settings={"default": now},
        claims=claims(target.find(path), **{f"algorithm:{n}": words for n, words in said.items()}),
    )
    yield Boundary(
        path=decided,
        stage="correct",
        call=keep,
        reads=reads,
        outputs={"keep": Output("B", "", "keep", "sequence")},
        settings={"default": {"most": 3.0, **now}},
        claims=claims(target.find(decided), algorithm="fresh rows"),
    )


def _rows(target: Target, name: str, reads: set[str], call: Callable[[Batch], Tensor], definition: str) -> Boundary:
    path = f"{METRICS}.{name}"
    return Boundary(
        path=path,
        stage="metric",
        call=lambda batch, _settings: {"share": call(batch)},
        reads=frozenset(reads),
        outputs={"share": Output("", "", name, over="live")},
        claims=claims(target.find(path), **_pinned({"share": definition})),
    )
