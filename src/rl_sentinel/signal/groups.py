"""Statistics over the live responses of each prompt: sums, counts, maxima, centering, standard deviations."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import CHECKED, refuse_where
from rl_sentinel.signal.kernels import labels
from rl_sentinel.signal.requirements import require_finite, require_span, sum_is_finite
from rl_sentinel.signal.validation import named, validate


@validate()
def group_sums(
    values: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """For each row, the sum over the live rows of its group.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.groups import group_sums
        >>> group_sums(torch.tensor([1.0, 2.0, 9.0]), group=torch.tensor([7, 7, -1]), live=torch.ones(3).bool())
        tensor([3., 3., 9.])
    """
    number = labels.places(group)
    return _sums(torch.where(live, values, torch.zeros_like(values)), number)[number]


@validate()
def group_counts(*, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]) -> Int[Tensor, " B"]:
    """For each row, the number of live rows in its group.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.groups import group_counts
        >>> group_counts(group=torch.tensor([7, 7, -1]), live=torch.tensor([True, False, True]))
        tensor([1, 1, 1])
    """
    number = labels.places(group)
    return _sums(live.to(number.dtype), number)[number]


@validate()
def group_maxima(
    values: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """For each row, the largest value among the live rows of its group; minus infinity without any.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.groups import group_maxima
        >>> group_maxima(torch.tensor([1.0, 2.0, 9.0]), group=torch.tensor([0, 0, 0]),
        ...              live=torch.tensor([True, True, False]))
        tensor([2., 2., 2.])
    """
    number = labels.places(group)
    return _maxima(values, live, number)[number]


@validate()
def centered(
    values: Float[Tensor, " B"],
    *,
    group: Int[Tensor, " B"],
    live: Bool[Tensor, " B"],
    weight: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, " B"]:
    r"""Each live value minus the (weighted) mean of its group's live values.

    .. math:: c_b = r_b - \frac{\sum_{j \in g(b)} w_j r_j}{\sum_{j \in g(b)} w_j}

    The mean is computed from distances to the group's largest value, so that a group of equal values
    gives exactly 0 at any magnitude.

    Args:
        values: one number per row.
        group: prompt id per row; any integers, in any order.
        live: True where the row has at least one trained token.
        weight: weight of each row in the mean, 0 or more on live rows and not 0 on all of a group; all equal if not
            given. A row of weight 0 is centered on the mean of the other rows.

    Returns:
        Centered values, in float32 or wider; exactly 0 where ``live`` is False.

    Raises:
        InputError: if a value is not finite on a live row, or its distance to the mean overflows; if a
            weight there is negative, or all weights of a group are 0; or if a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.groups import centered
        >>> reward, live = torch.tensor([1.0, 0.0, 100.0]), torch.tensor([True, True, False])
        >>> centered(reward, group=torch.tensor([3, 3, 3]), live=live)
        tensor([ 0.5000, -0.5000,  0.0000])
    """
    _require_rewards(values, live)
    share = live
    if weight is not None:
        why = "it weights a live response"
        require_finite("weight", weight, where=live, why=why)
        require_span("weight", weight, where=live, span=(0.0, torch.inf), why=why)
        share = weight
    number, share = labels.places(group), torch.where(live, share, torch.zeros_like(share))
    if weight is not None:
        _require_weight(share, live, number)
    return _centered(values, live, number, share)[0]


@validate()
def moments(
    values: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"], biased: bool = False
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Compute :func:`centered` and :func:`deviations` in one pass over the groups.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.groups import moments
        >>> reward, group = torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1])
        >>> moments(reward, group=group, live=torch.ones(3).bool())
        (tensor([-1.,  1.,  0.]), tensor([1.4142, 1.4142, 0.0000]))
    """
    _require_rewards(values, live)
    number = labels.places(group)
    middle, count = _centered(values, live, number, live)
    wide = middle.double()  # a square may overflow or underflow the dtype
    squares = _sums(wide.square(), number) / (count - (0 if biased else 1)).clamp_(min=1)
    return middle, _roots(squares).to(middle.dtype).index_select(0, number)


@named
def deviations(
    values: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"], biased: bool = False
) -> Float[Tensor, " B"]:
    """For each row, the standard deviation of its group's live values; 0 where there are fewer than two.

    Squares are divided by n - 1, or by n if ``biased``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.groups import deviations
        >>> deviations(torch.tensor([1.0, 3.0, 5.0]), group=torch.tensor([0, 0, 1]), live=torch.ones(3).bool())
        tensor([1.4142, 1.4142, 0.0000])
    """
    return moments(values, group=group, live=live, biased=biased)[1]


@validate()
def places(group: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Number the groups from 0; return the index of each row's group."""
    number: Tensor = torch.unique(group.long(), return_inverse=True)[1]
    return number


def _require_rewards(values: Tensor, live: Tensor) -> None:
    why = "a row with a trained token needs a reward (mask the row to leave it out)"
    require_finite("reward", values, where=live, why=why)


def _require_weight(weight: Tensor, live: Tensor, number: Tensor) -> None:
    """Raise for a group whose live rows all have weight 0: its weighted mean is undefined."""
    wrong = live & (_sums(weight, number) <= 0).index_select(0, number)
    refuse_where(wrong, lambda at: f"weight{at} and all weights of its group are 0, expected one above 0 for the mean")


def _sums(kept: Tensor, number: Tensor) -> Tensor:
    """``[B]``: the sum of group ``n`` at index ``n``; half precision is added up in float32; unused places are 0."""
    wide = kept.float() if kept.dtype in (torch.float16, torch.bfloat16) else kept
    return torch.zeros_like(wide).index_add_(0, number, wide).to(kept.dtype)


def _roots(squares: Tensor) -> Tensor:
    """Square roots whose gradient is 0 at 0, where it would be infinite."""
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)


def _maxima(values: Tensor, live: Tensor, number: Tensor) -> Tensor:
    """As :func:`_sums`, but the largest live value; minus infinity without live rows."""
    lowest = torch.full_like(values, -torch.inf)
    found: Tensor = lowest.scatter_reduce(0, number, torch.where(live, values, lowest), "amax")
    return found


def _centered(values: Tensor, live: Tensor, number: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Each value minus its group's mean, weighted by ``share``, and each group's sum of ``share``.

    ``share`` and the centered values are 0 in rows that are not live. The mean is computed from distances to the
    group's largest value, for precision.
    """
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    far = wide.double()  # a distance, or a sum of distances, may overflow the dtype
    counted, nothing = share.to(far.dtype), torch.zeros_like(far)
    distance = torch.where(live, far - _maxima(far, live, number).index_select(0, number), nothing)
    whole = _sums(counted, number)
    mean = _sums(counted * distance, number).div_(whole).index_select(0, number)
    middle = torch.where(live, distance - mean, nothing).to(wide.dtype)
    _require_near(middle, values)
    return middle, whole


def _require_near(middle: Tensor, values: Tensor) -> None:
    """Raise for finite values whose difference overflows their dtype."""
    if not CHECKED or sum_is_finite(middle):
        return
    kind = str(middle.dtype).removeprefix("torch.")
    why = f"the difference overflows {kind} (scale the rewards down)"
    refuse_where(
        ~middle.isfinite(),
        lambda at: f"reward{at} is {values[at[0]].item()}, expected a value nearer to the rest of its group: {why}",
    )
