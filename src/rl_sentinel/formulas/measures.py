"""Batch metrics that are not means, by every definition: explained variance, dead groups, sample size."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import permutations

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.allowed import LOGPROBS
from rl_sentinel.formulas.prompt_metrics import PER_PROMPT, over_prompts

#: Name of a definition -> its value.
Named = dict[str, Tensor]
Measure = Callable[[Batch, frozenset[str], str, Settings], Named]

#: Numbers that may be added to the variance of returns in a denominator.
EPSILONS = (1e-8, 1e-5)


def _explained(batch: Batch, _reads: frozenset[str], _over: str, _settings: Settings) -> Named:
    """Explained variance: the share of the returns' variance that the values explain, over trained tokens."""
    returns, left = batch.returns[batch.mask], (batch.returns - batch.value)[batch.mask]
    plain = "of a variance, 0 where it is not defined"
    if len(returns) < 2:
        return {plain: returns.new_zeros(())}
    alike = len(set(returns.tolist())) < 2
    found = {plain: returns.new_zeros(()) if alike else 1 - left.var() / returns.var()}
    return found | {f"of a variance and {e:g}": 1 - left.var() / (returns.var() + e) for e in EPSILONS}


def _dead_groups(batch: Batch, _reads: frozenset[str], over: str, _settings: Settings) -> Named:
    """The share of prompts with equal rewards for all rows, and the share of rows in such prompts."""
    found: Named = {}
    for who, rows in _populations(batch, over).items():
        groups = sorted(set(batch.group[rows].tolist()))
        same = [len(set(batch.reward[rows & (batch.group == g)].tolist())) == 1 for g in groups]
        sizes = [int((rows & (batch.group == g)).sum()) for g in groups]
        dead = [size for size, one in zip(sizes, same, strict=True) if one]
        found[f"prompts of {who}"] = torch.tensor(len(dead) / len(same), dtype=torch.float64)
        found[f"rows of such prompts among {who}"] = torch.tensor(sum(dead) / sum(sizes), dtype=torch.float64)
    return found


def _populations(batch: Batch, over: str) -> dict[str, Tensor]:
    live = {"live rows": batch.live} if bool(batch.live.any()) else {}
    return live | ({} if over == "live" else {"all rows": torch.ones_like(batch.live)})


def _sample_size(batch: Batch, reads: frozenset[str], over: str, settings: Settings) -> Named:
    """The effective sample size as a share of the number of ratios: squared sum over sum of squares.

    Ratios above the setting ``high`` are set to 0; the result is 0 if all ratios are 0.
    """
    places = {"trained tokens": batch.mask} | ({} if over == "live" else {"response tokens": batch.valid})
    found: Named = {}
    for one, other in permutations(sorted(LOGPROBS & reads), 2):
        for where, chosen in places.items():
            ratio = (getattr(batch, one) - getattr(batch, other))[chosen].exp()
            kept = torch.where(ratio <= float(settings.get("high") or math.inf), ratio, 0.0)
            share = kept.sum().square() / (kept.square().sum() * len(kept)) if bool(kept.any()) else kept.sum()
            found[f"ratios of {one} to {other} over {where}"] = share
    return found


def _count_rows(counted: Callable[[Tensor], Tensor]) -> Measure:
    """A measure that counts the rows for whose outcome ``counted`` is True."""

    def count(batch: Batch, _reads: frozenset[str], over: str, _settings: Settings) -> Named:
        return {who: (rows & counted(batch.reward)).sum().double() for who, rows in _populations(batch, over).items()}

    return count


def _trained(batch: Batch, _reads: frozenset[str], _over: str, _settings: Settings) -> Named:
    return {"trained tokens": batch.mask.sum().double()}


def _untrained(batch: Batch, _reads: frozenset[str], _over: str, _settings: Settings) -> Named:
    """The share of tokens that do not train."""
    trained, response = batch.mask.sum().double(), batch.length.sum().double()
    found = {"of prompts and responses": 1 - trained / (response + batch.prompt_length.sum())}
    return found | ({"of responses": 1 - trained / response} if bool(response) else {})


def _padding(batch: Batch, _reads: frozenset[str], _over: str, _settings: Settings) -> Named:
    """The fraction of padding if all sequences are padded to the longest one."""
    lengths = (batch.prompt_length + batch.length).double()
    return {"a row for each sequence": 1 - lengths.mean() / lengths.max()} if bool(lengths.any()) else {}


#: Quantity -> the columns that it reads, and its definitions; ``LOGPROBS`` means any two log-prob columns.
MEASURES: Mapping[str, tuple[frozenset[str], Measure]] = {
    "explained_variance": (frozenset({"value", "returns"}), _explained),
    "dead_group_fraction": (frozenset({"reward", "group"}), _dead_groups),
    "effective_sample_size": (LOGPROBS, _sample_size),
    "rewarded_rows": (frozenset({"reward"}), _count_rows(lambda reward: reward > 0)),
    "unrewarded_rows": (frozenset({"reward"}), _count_rows(lambda reward: reward <= 0)),
    "trained_tokens": (frozenset({"mask"}), _trained),
    "untrained_fraction": (frozenset({"mask"}), _untrained),
    "padding_fraction": (frozenset({"mask"}), _padding),
    **{name: (frozenset({"reward", "group"}), partial(over_prompts, name)) for name in PER_PROMPT},
}


def is_measure(quantity: str, reads: frozenset[str]) -> bool:
    """Whether :data:`MEASURES` has the quantity, and ``reads`` has the columns that it needs.

    Example:
        >>> is_measure("explained_variance", frozenset({"value", "returns", "mask"}))
        True
    """
    wanted, _ = MEASURES.get(quantity, (frozenset[str](), None))
    return len(LOGPROBS & reads) >= 2 if wanted is LOGPROBS else bool(wanted) and wanted <= reads


def measured_batch(quantity: str, batch: Batch, reads: frozenset[str], over: str, settings: Settings) -> Named:
    """Name -> value of every accepted definition; ``over`` is the population of rows that the boundary declares.

    Example:
        >>> from rl_sentinel.core.batch import batch_of
        >>> columns = {"reward": torch.tensor([1.0, 1.0, 0.0]), "group": torch.tensor([4, 4, 5])}
        >>> batch = batch_of(torch.ones(3, 1).bool(), **columns)
        >>> found = measured_batch("dead_group_fraction", batch, frozenset({"reward", "group"}), "live", {})
        >>> found["prompts of live rows"]
        tensor(1., dtype=torch.float64)
    """
    return MEASURES[quantity][1](batch, reads, over, settings)
