"""GPG: centered rewards, divided by the share of rows in groups with unequal rewards."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.signal.groups import centered, group_counts
from rl_sentinel.signal.validation import validate

#: Claims about this estimator; the share is counted over the batch.
CLAIMS = {
    "algorithm": "gpg",
    "scope": "batch",
    "grouping": "id",
    "credit": "outcome",
    "baseline": "relative",
    "standardized": "no",
    "lone": "zero",
    "masked": "yes",
    "masked-slots": "any",
}


@validate()
def advantages(
    reward: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    r"""Center each reward on the mean of its group's live rewards, and divide by the share of rows with a signal.

    .. math:: A_b = \frac{B}{B - M} (r_b - \bar r_{g(b)})

    ``B`` is the number of live rows, ``M`` the number of live rows whose group has equal rewards (no signal).

    Args:
        reward: task reward per response, in reward units.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.

    Returns:
        Advantage per response, in reward units; exactly 0 where ``live`` is False, and all 0 if
        no group has a signal.

    Raises:
        InputError: if ``reward`` is not finite on a live row, or a dtype or shape is wrong.

    Source:
        GPG, arXiv 2504.02546, without division by a deviation. Only live rows are counted.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.gpg import advantages
        >>> reward, group = torch.tensor([1.0, 0.0, 2.0, 2.0]), torch.tensor([0, 0, 1, 1])
        >>> advantages(reward, group=group, live=torch.ones(4).bool())
        tensor([ 1., -1.,  0.,  0.])
    """
    relative = centered(reward, group=group, live=live)
    signal = live & (group_counts(group=group, live=relative != 0) > 0)
    return relative * live.sum() / signal.sum().clamp(min=1)
