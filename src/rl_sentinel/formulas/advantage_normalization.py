"""Normalizations of advantages in a policy loss: over tokens or responses, with several deviations and offsets."""

from itertools import product

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns

#: Name of the setting whose value is the normalization of a loss.
SETTING = "advantages normalized"

_OVER = ("trained tokens", "responses")

_OFFSETS = {"1e-08": 1e-8, "1e-06": 1e-6, "1e-05": 1e-5, "1e-04": 1e-4}

#: A deviation below this share of the largest advantage is mostly rounding in float32.
_NEAR = 1e-2

#: Names of all normalizations.
NORMALIZATIONS = tuple(
    f"over {over} by deviation ({denominator}), offset {offset} {how}"
    for over, denominator, offset, how in product(_OVER, ("n - 1", "n"), _OFFSETS, ("beside", "within the root"))
)


def normalized(batch: Batch, name: str) -> Batch | None:
    """The batch with normalized advantages; None if the result is not determined.

    It is not determined if rounding decides; for fewer than two rows or numbers, which a loss may leave unchanged; and,
    over responses, if the tokens of one response have different advantages.

    Losses normalize over the mini-batch, as studied by Andrychowicz et al., What Matters In On-Policy Reinforcement
    Learning? (arXiv 2006.05990); implementations differ in the denominator of the deviation and in the offset.
    """
    advantage = batch.advantage.double()
    numbers = advantage[batch.mask] if "over trained tokens" in name else _of_responses(advantage, batch)
    if numbers is None or numbers.numel() < 2 or batch.rows < 2:
        return None
    spread = numbers.std(correction=int("(n - 1)" in name))
    if spread < _NEAR * numbers.abs().max():
        return None
    offset = next(x for text, x in _OFFSETS.items() if text in name)
    scale = (spread**2 + offset).sqrt() if "root" in name else spread + offset
    return with_columns(batch, advantage=(advantage - numbers.mean()) / scale)


def _of_responses(advantage: Tensor, batch: Batch) -> Tensor | None:
    """The advantage of each live row; None without a live row, or if tokens of one row have different advantages."""
    rows = [advantage[b][batch.mask[b]] for b in range(batch.rows) if bool(batch.live[b])]
    return torch.stack([row[0] for row in rows]) if rows and all(bool((r == r[0]).all()) for r in rows) else None
