"""Statistics of a metric over the tokens, rows or groups that it may count."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output

#: Name of a definition -> its value.
Named = dict[str, Tensor]

#: Last word of a quantity -> statistics of a flat list of numbers.
STATISTICS: Mapping[str, Callable[[Tensor], Named]] = {
    "mean": lambda x: {"mean": x.mean()},
    "absolute": lambda x: {"mean magnitude": x.abs().mean()},
    "max": lambda x: {"maximum": x.max()},
    "min": lambda x: {"minimum": x.min()},
    "std": lambda x: {
        "deviation (n - 1)": x.std() if len(x) > 1 else x.sum() * 0,
        "deviation (n)": x.std(correction=0),
    },
}


def row_reductions(tokens: Named, mask: Tensor) -> Named:
    """``[B]``: the mean and the sum over each row's trained tokens; 0 for a row without a trained token."""
    found: Named = {}
    for name, x in tokens.items():
        total = torch.where(mask, x, 0.0).sum(1)
        found[f"{name}, row mean"] = total / mask.sum(1).clamp(min=1)
        found[f"{name}, row sum"] = total
    return found


def over_tokens(
    tokens: Named, batch: Batch, output: Output, statistic: Callable[[Tensor], Named], only: str = ""
) -> Named:
    """The statistic over tokens; a mean has further readings.

    They are the sum over trained tokens, this sum divided by the number of all positions, and means over rows or groups
    of row means or row sums.
    """
    found: Named = {}
    tokens = _parts(tokens, only)
    places = {"trained tokens": batch.mask} | (
        {} if output.over in ("live", "rows") else {"response tokens": batch.valid}
    )
    for name, x in tokens.items():
        for where, chosen in _parts(places, only).items():
            found |= {f"{s} of {name} over {where}": v for s, v in statistic(x[chosen]).items()}
    if statistic is STATISTICS["mean"]:
        found |= over_rows(row_reductions(tokens, batch.mask), batch, output, statistic, only)
        for name, x in tokens.items():
            total = torch.where(batch.mask, x, 0.0).sum()
            found |= {f"sum of {name}": total, f"sum of {name} by the width": total / x.numel()}
    return found


def over_rows(rows: Named, batch: Batch, output: Output, statistic: Callable[[Tensor], Named], only: str = "") -> Named:
    """The statistic over each population of rows that the output may count, and over the means of their groups."""
    everyone = torch.ones_like(batch.live)
    populations = {
        "live": {"live rows": batch.live, "scored live rows": batch.live & batch.scored},
        "all": {"all rows": everyone, "scored rows": batch.scored},
    }
    rows = _parts(rows, only)
    declared = "all" if output.over == "rows" else output.over
    chosen = {n: p for over, ps in populations.items() if declared in ("", over) for n, p in ps.items()}
    counted = [
        (who, where, *torch.unique(batch.group[where], return_inverse=True))
        for who, where in (_parts(chosen, only) if rows else {}).items()
    ]
    found: Named = {}
    for name, x in rows.items():
        for who, where, labels, of in counted:
            if not len(labels):
                continue
            groups = x.new_zeros(len(labels)).index_add_(0, of, x[where]) / of.bincount()
            found |= {f"{s} of {name} over {who}": v for s, v in statistic(x[where]).items()}
            found |= {f"{s} of {name} over groups of {who}": v for s, v in statistic(groups).items()}
    return found


def _parts(named: Named, only: str) -> Named:
    """The parts that occur in the name ``only`` of a definition; all parts if no name is given."""
    return {name: x for name, x in named.items() if not only or name in only}
