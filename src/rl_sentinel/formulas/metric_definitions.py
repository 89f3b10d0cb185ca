"""Accepted definitions of logged quantities, recomputed from the raw batch in float64."""

from collections.abc import Callable, Mapping
from itertools import permutations

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, Batch, with_columns
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.case import Settings, number_of
from rl_sentinel.formulas.allowed import LOGPROBS, kind
from rl_sentinel.formulas.clip_fractions import clip_range, clipped, dual_clipped, rows_clipped, values_clipped
from rl_sentinel.formulas.measures import MEASURES, is_measure, measured_batch
from rl_sentinel.formulas.metric_statistics import STATISTICS, over_rows, over_tokens, row_reductions
from rl_sentinel.formulas.perplexities import measures_rows, of_rows, of_tokens, policies_needed
from rl_sentinel.formulas.rejections import bounds, kept, measured

#: Name of a definition -> its value.
Named = dict[str, Tensor]

#: Estimators of a KL from the log-ratio of the sampling policy to the other policy, in nats.
KL: Mapping[str, Mapping[str, Callable[[Tensor], Tensor]]] = {
    "k1": {"k1": lambda d: d},
    "abs": {"absolute k1": lambda d: d.abs()},
    "k2": {"k2": lambda d: d.square() / 2},
    "k3": {
        "k3": lambda d: torch.expm1(-d) + d,
        "k3 cut at 10": lambda d: (torch.expm1(-d) + d).clamp(-10, 10),
    },
}

#: First word of a quantity -> its value per token from two columns of log-probs.
PAIRED: Mapping[str, Callable[[Batch, str, str], Tensor]] = {
    "ratio": lambda b, one, other: (getattr(b, one) - getattr(b, other)).exp(),
    "ratio_distance": lambda b, one, other: ((getattr(b, one) - getattr(b, other)).exp() - 1).abs(),
    "probability_difference": lambda b, one, other: (getattr(b, one).exp() - getattr(b, other).exp()).abs(),
}

_LENGTHS: Mapping[str, Callable[[Batch], Tensor]] = {
    "response tokens": lambda b: b.length.double(),
    "trained tokens": lambda b: b.mask.sum(1).double(),
}


def _of_trained(labels: Tensor, batch: Batch, extreme: Callable[[Tensor], Tensor]) -> Tensor:
    """``[B]``: the smallest or largest label of each row's trained tokens; 0 for a row without a trained token."""
    rows = [
        extreme(row[mask]) if bool(mask.any()) else row.new_zeros(())
        for row, mask in zip(labels, batch.mask, strict=True)
    ]
    return torch.stack(rows).double()


#: First word of a quantity -> possible values per row, by name of the definition.
ROWS: Mapping[str, Mapping[str, Callable[[Batch], Tensor]]] = {
    "reward": {
        "outcome reward": lambda b: b.reward,
        "outcome and token rewards": lambda b: b.reward + torch.where(b.valid, b.token_reward, 0.0).sum(1),
        "outcome and trained token rewards": lambda b: b.reward + torch.where(b.mask, b.token_reward, 0.0).sum(1),
    },
    "outcome": {"outcome reward": lambda b: b.reward},
    "positive_outcome": {"outcome reward above 0": lambda b: b.reward.clamp(min=0)},
    "shaped_reward": {
        "outcome and token rewards": lambda b: b.reward + torch.where(b.valid, b.token_reward, 0.0).sum(1),
        "outcome and trained token rewards": lambda b: b.reward + torch.where(b.mask, b.token_reward, 0.0).sum(1),
    },
    "unscored": {"no score": lambda b: (~b.scored).double()},
    "trained": {"a trained token": lambda b: b.live.double()},
    "full_length": {
        "no room left": lambda b: (b.length == b.width).double(),
        "every position trained": lambda b: (b.mask.sum(1) == b.width).double(),
    },
    "length": _LENGTHS,
    "response_length": _LENGTHS,
    "sequence_length": {"tokens of prompt and response": lambda b: (b.prompt_length + b.length).double()},
    "prompt_length": {
        "prompt tokens": lambda b: b.prompt_length.double(),
        "tokens that do not train": lambda b: (b.prompt_length + b.length - b.mask.sum(1)).double(),
        "tokens before the first trained one": lambda b: (
            b.prompt_length + torch.where(b.live, b.mask.int().argmax(1), b.length)
        ).double(),
    },
    "oldest_version": {"oldest of the trained tokens": lambda b: _of_trained(b.version, b, torch.amin)},
    "newest_version": {"newest of the trained tokens": lambda b: _of_trained(b.version, b, torch.amax)},
}

#: First word of a quantity -> the measure or decision of a rejection at each trained token.
REJECTIONS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "distance": measured,
    "too_far": lambda b, s: (measured(b, s) > bounds(s)[1]).double(),
    "too_near": lambda b, s: (measured(b, s) < (bounds(s)[0] or 0.0)).double(),
    "rejected": lambda b, s: 1 - kept(b, s),
}

#: The share of ratios outside of the range between the settings ``least`` and ``most``.
RATIO_OUTSIDE = "ratio_outside"

#: Rounding may decide for a ratio that is nearer to a bound than this share of it.
_ON_BOUND = 1e-5

#: The number of tokens in each run of trained tokens of a row, such as a turn of a model.
RUN_LENGTH = "run_length"

#: The share of rejected rows; one rejected token rejects its row.
REJECTED_ROWS = "rejected_rows"

#: First words of quantities that are columns of the batch, logged unchanged.
COLUMN_NAMES = ("advantage", "returns", "value", "entropy", "logprob", "old_logprob", "rollout_logprob")

#: First word of a quantity of the whole batch -> the columns that it is computed from.
_WHOLE: Mapping[str, frozenset[str]] = {
    "clip_fraction": frozenset({"logprob", "old_logprob", "advantage"}),
    "clip_fraction_lower": frozenset({"logprob", "old_logprob", "advantage"}),
    "sequences_clipped": frozenset({"logprob", "old_logprob", "advantage"}),
    "value_clip_fraction": frozenset({"value", "old_value", "returns"}),
}


#: First word of a quantity -> the setting that it needs.
_BOUND_OF = {"value_clip_fraction": "value_clip", "clip_fraction_lower": "ceiling"}


def is_defined(output: Output, reads: frozenset[str], settings: Settings) -> bool:
    """Whether the quantity of an output has a definition here, and ``reads`` has the columns that it needs."""
    first, last = kind(output.quantity), output.quantity.rpartition(".")[2]
    pairs = len(LOGPROBS & reads) >= 2 and "logits" not in reads
    if first == "kl":
        return pairs and last in {"kl", "row_mean", "mean", *KL}
    if first in MEASURES:
        return output.axes == "" and output.quantity == first and is_measure(first, reads)
    if first in _WHOLE:
        known = output.quantity == first or "advantage" not in _WHOLE[first]
        known = known and (_BOUND_OF[first] in settings if first in _BOUND_OF else bool(clip_range(settings)))
        return known and output.axes == "" and _WHOLE[first] <= reads
    if first in (*COLUMN_NAMES, RUN_LENGTH):
        known = first in {*reads, RUN_LENGTH} and not ({"logits", "logprob"} & reads and first == "entropy")
        return known and output.axes == "" and last in STATISTICS
    if first in (*PAIRED, RATIO_OUTSIDE):
        bounded = first in PAIRED or (output.axes == "" and {"least", "most"} <= settings.keys())
        return pairs and bounded and last in (first, *STATISTICS)
    compared = 0 < policies_needed(first) <= len(LOGPROBS & reads) and "logits" not in reads
    rejects = (first in REJECTIONS or first == REJECTED_ROWS) and output.axes == "" and "estimator" in settings
    return (first in ROWS or compared or rejects) and output.axes in ("", "B") and last in (first, *STATISTICS)


def definitions(output: Output, batch: Batch, reads: frozenset[str], settings: Settings, only: str = "") -> Named:
    """Name -> value, in the axes of the output, of every accepted definition of its quantity.

    Empty if the result is not determined: a quantity of each row's trained tokens if a row has none, a standard
    deviation of fewer than two tokens, and a decision at a bound that rounding makes.
    With ``only``, the name of one definition, the others may be missing.
    """
    first, last = kind(output.quantity), output.quantity.rpartition(".")[2]
    if last == "std" and int(batch.mask.sum()) < 2:
        return {}  # the deviation of one number: torch returns NaN, others 0
    if first == RUN_LENGTH:
        lengths = _run_lengths(batch.mask)
        return STATISTICS[last](lengths) if len(lengths) else {}
    return _definitions(first, last, output, batch, reads, settings, only)


def _definitions(  # noqa: PLR0913 - the parts of the quantity's name, and the parameters of definitions
    first: str, last: str, output: Output, batch: Batch, reads: frozenset[str], settings: Settings, only: str
) -> Named:
    wide = with_columns(batch, **{n: getattr(batch, n).double() for n in reads if COLUMNS[n]["role"] == "signal"})
    statistic = STATISTICS.get(last, STATISTICS["mean"])
    if first in MEASURES:
        return measured_batch(first, wide, reads, output.over, settings)
    if first in REJECTIONS or first == REJECTED_ROWS:
        return _of_rejection(first, wide, output, reads, settings)
    rows = _rows(first, wide, reads, settings)
    if rows is not None:
        return rows if output.axes == "B" else over_rows(rows, wide, output, statistic, only)
    tokens = _tokens(first, last, wide, reads, settings)
    if output.axes == "B T":
        return tokens
    if output.axes == "B":
        return row_reductions(tokens, batch.mask)
    return over_tokens(tokens, wide, output, statistic, only)


def _run_lengths(mask: Tensor) -> Tensor:
    """The length of each run of trained tokens, which untrained tokens and the ends of rows separate."""
    between = mask.new_zeros((len(mask), 1))
    place = torch.nonzero(torch.diff(torch.cat([between, mask, between], 1).int()).flatten()).flatten()
    return (place[1::2] - place[::2]).double()


def _rows(first: str, batch: Batch, reads: frozenset[str], settings: Settings) -> Named | None:
    """Definitions of a quantity with one number per row; None for other quantities."""
    if first in ROWS:
        return {name: count(batch) for name, count in ROWS[first].items()}
    if first == "sequences_clipped":
        return rows_clipped(batch, settings)
    if measures_rows(first):
        return of_rows(first, batch, reads) if bool(batch.live.all()) else {}
    return None


def _of_rejection(first: str, batch: Batch, output: Output, reads: frozenset[str], settings: Settings) -> Named:
    """Definitions of a quantity about rejection of tokens or rows; empty if a number is at a bound."""
    batch = batch if "logprob" in reads else with_columns(batch, logprob=batch.old_logprob)
    decided = kept(batch, settings)
    if bool(decided.isnan().any()):
        return {}
    statistic = STATISTICS[output.quantity.rpartition(".")[2]]
    if first == REJECTED_ROWS:
        return over_rows({"rows with a rejected token": (decided < 1).any(1).double()}, batch, output, statistic)
    return over_tokens({first: REJECTIONS[first](batch, settings)}, batch, output, statistic)


def _tokens(first: str, last: str, batch: Batch, reads: frozenset[str], settings: Settings) -> Named:
    if first in COLUMN_NAMES:
        return {first: getattr(batch, first)}
    if first == "clip_fraction":
        return clipped(batch, *(clip_range(settings) or (0.0, 0.0)))
    if first == "clip_fraction_lower":
        return dual_clipped(batch, number_of(settings, "ceiling"))
    if first == "value_clip_fraction":
        return values_clipped(batch, number_of(settings, "value_clip"))
    if first == "chi_square":
        return of_tokens(batch, reads)
    found: Named = {}
    for one, other in permutations(sorted(LOGPROBS & reads), 2):
        log_ratio = getattr(batch, one) - getattr(batch, other)
        if first == RATIO_OUTSIDE:
            found |= _outside(f"ratio of {one} to {other} outside", log_ratio.exp(), settings)
        elif first in PAIRED:
            found[f"{first.replace('_', ' ')} of {one} to {other}"] = PAIRED[first](batch, one, other)
        else:
            found |= _divergences(f"{one} against {other}", log_ratio, last)
    return found


def _divergences(pair: str, log_ratio: Tensor, last: str) -> Named:
    """The values of the KL estimators that the last word of the quantity stands for."""
    groups = [estimators for group, estimators in KL.items() if last in (group, "kl", "row_mean", "mean")]
    return {f"{n} of {pair}": f(log_ratio) for estimators in groups for n, f in estimators.items()}


def _outside(name: str, ratio: Tensor, settings: Settings) -> Named:
    """1 where a ratio is outside of its range; empty if a ratio is at a bound."""
    least, most = number_of(settings, "least"), number_of(settings, "most")
    at_bound = any(bool(((ratio - bound).abs() <= _ON_BOUND * bound).any()) for bound in (least, most) if bound)
    return {} if at_bound else {name: ((ratio < least) | (ratio > most)).double()}
