"""Staleness: how many updates behind the current weights the sampling weights of a token are."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where
from rl_sentinel.signal.reduce import live_rows, row_maxima
from rl_sentinel.signal.requirements import COUNT, LIMIT
from rl_sentinel.signal.segments import Mask, trained
from rl_sentinel.signal.validation import validate

#: Claims about every function.
CLAIMS = {"masked": "yes", "masked-slots": "any"}

#: Further claims, by function.
CLAIMS_OF = {"fresh_rows": {"knob:most": "3.0|4.0"}}


class Staleness(NamedTuple):
    """Mean and maximum number of updates behind, over trained tokens; and the share of rows with mixed versions."""

    mean: Float[Tensor, ""]
    most: Float[Tensor, ""]
    mixed: Float[Tensor, ""]


@validate(rows=True, current=COUNT)
def staleness(version: Int[Tensor, "*S"], *, mask: Mask, current: int) -> Staleness:
    r"""Count the updates between the weights that sampled a token and the weights trained on it.

    .. math:: a_t = c - v_t, \quad \bar a = \frac1n \sum_t a_t

    Args:
        version: number of updates of the weights that sampled each token.
        mask: True on trained tokens (or rows); other values are ignored.
        current: number of updates of the weights that are trained now.

    Returns:
        Mean and maximum number of updates behind, and the share of live rows whose trained tokens have more than one
        version, because the weights changed during sampling; all 0 if nothing is trained.

    Raises:
        InputError: if a trained token is of a version after ``current``, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.staleness import staleness
        >>> version, mask = torch.tensor([[3, 4], [4, 9]]), torch.tensor([[True, True], [True, False]])
        >>> staleness(version, mask=mask, current=5)
        Staleness(mean=tensor(1.3333), most=tensor(2.), mixed=tensor(0.5000))
    """
    behind = _behind(version, mask=mask, current=current)
    where = trained(mask)
    kept = torch.where(where, behind, torch.zeros_like(behind))
    count = where.sum().clamp(min=1)
    most = kept.max() if kept.numel() else kept.sum()
    if where.dim() == 1 and where is mask:
        return Staleness(kept.sum() / count, most, torch.zeros_like(most))
    live = live_rows(mask)
    mixed = live & (row_maxima(behind, mask=mask) != -row_maxima(-behind, mask=mask))
    return Staleness(kept.sum() / count, most, mixed.sum() / live.sum().clamp(min=1))


@validate(current=COUNT, most=LIMIT)
def fresh_rows(version: Int[Tensor, "*S"], *, mask: Mask, current: int, most: float) -> Bool[Tensor, " B"]:
    r"""Select the responses whose oldest trained token is recent enough.

    .. math:: \max_t (c - v_t) \le m

    Args:
        version: number of updates of the weights that sampled each token.
        mask: True on trained tokens; other values are ignored.
        current: number of updates of the weights that are trained now.
        most: the largest number of updates that a token may be behind; 0 or more.

    Returns:
        True for responses that are kept; False in a row without a trained token. ``segments.narrowed`` takes the
        others out of the mask of a rollout, before any statistic.

    Raises:
        InputError: as ``staleness``, or if ``most`` is negative.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.staleness import fresh_rows
        >>> version, mask = torch.tensor([[3, 4], [4, 0]]), torch.tensor([[True, True], [True, False]])
        >>> fresh_rows(version, mask=mask, current=5, most=1)
        tensor([False,  True])
    """
    behind = _behind(version, mask=mask, current=current)
    return live_rows(mask) & (row_maxima(behind, mask=mask) <= most)


def _behind(version: Int[Tensor, "*S"], *, mask: Mask, current: int) -> Float[Tensor, "*S"]:
    behind = (current - version.long()).to(torch.get_default_dtype())
    refuse_where(
        trained(mask) & (behind < 0),
        lambda at: (
            f"version[{', '.join(map(str, at))}] is {int(version[tuple(at)])}, expected at most {current}, the current "
            "one: no token is sampled by later weights"
        ),
    )
    return behind
