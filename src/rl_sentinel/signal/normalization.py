"""Reward normalization: mean and standard deviation, each over the batch, the prompt's responses, or neither."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import one_of
from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.groups import centered, deviations, group_counts
from rl_sentinel.signal.requirements import NON_NEGATIVE
from rl_sentinel.signal.validation import validate, validate_record

Over = Literal["batch", "group", "none"]

#: Claims about this function, for every normalization.
CLAIMS = {"algorithm": "normalized", "masked": "yes", "masked-slots": "any", "knob:epsilon": "1e-06|0.25"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalization:
    """Which mean to subtract, and which standard deviation to divide by.

    Attributes:
        mean: whose mean is subtracted: that of the live rows of the ``"batch"`` or of the row's ``"group"``, or
            ``"none"``.
        deviation: whose standard deviation divides, with the same choices.
        leave_one_out: compare a row with the mean of the other rows.
        biased: divide squares by n instead of n - 1.
        epsilon: added to the standard deviation, in reward units.
    """

    mean: Over
    deviation: Over
    leave_one_out: bool
    biased: bool
    epsilon: float

    def __post_init__(self) -> None:
        """Validate the choices and their combination."""
        for name, over in (("mean", self.mean), ("deviation", self.deviation)):
            one_of(name, over, get_args(Over))
        validate_record(self, epsilon=NON_NEGATIVE)
        if self.leave_one_out and self.mean == "none":
            raise InputError(
                "leave_one_out is True, expected False with mean 'none': there is no mean to leave a row out of"
            )


@validate(finite="reward")
def normalized(
    reward: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"], by: Normalization
) -> Float[Tensor, " B"]:
    r"""Center each live reward, then divide by the standard deviation of the centered rewards.

    .. math:: A_b = \frac{r_b - \bar r_b}{s_b + \epsilon}, \quad
        s_b^2 = \frac{1}{n - 1} \sum_{j \in P(b)} (c_j - \bar c_{P(b)})^2, \quad c_j = r_j - \bar r_{M(j)}

    :math:`\bar r_{M(j)}` is the mean over the live rows :math:`M(j)` of the batch or of the row's group, and
    :math:`\bar r_b` the same, but without the row itself if ``leave_one_out``; :math:`P(b)` are the live rows over
    which the deviation is taken, always with the row itself.

    Args:
        reward: task reward per response, in reward units; ignored where ``live`` is False.
        group: prompt id per response; any integers, in any order.
        live: True where the response counts; ``live & scored`` leaves out responses whose reward is not known.
        by: the center that is subtracted, and the scale that divides.

    Returns:
        One number per response, in standard deviations, or in reward units without a division. Exactly 0 where ``live``
        is False; for a response without siblings, if the mean or the deviation is over the group; and where the
        deviation that divides is 0: equal rewards carry no signal, and a small epsilon must not amplify rounding.

    Raises:
        InputError: if ``reward`` is not finite on a live row, or a dtype or shape is wrong.

    Source:
        These choices are in common use. The deviation is that of the centered values, so that
        with ``mean="group"`` and ``deviation="batch"`` a prompt's difficulty does not enter it, as in
        REINFORCE++, arXiv 2501.03262; it never leaves a row out.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.normalization import Normalization, normalized
        >>> reward, live = torch.tensor([1.0, 0.0, 4.0, 2.0]), torch.tensor([True, True, True, True])
        >>> by = Normalization(mean="group", deviation="none", leave_one_out=True, biased=False, epsilon=0.0)
        >>> normalized(reward, group=torch.tensor([0, 0, 1, 1]), live=live, by=by)
        tensor([ 1., -1.,  2., -2.])
    """
    wide = reward.to(torch.promote_types(reward.dtype, torch.float32))
    populations = {"batch": torch.zeros_like(group), "group": group}
    relative = torch.where(live, wide, torch.zeros_like(wide))
    if by.mean != "none":
        relative = centered(wide, group=populations[by.mean], live=live)
    scale = torch.ones_like(wide)
    if by.deviation != "none":
        spread = deviations(relative, group=populations[by.deviation], live=live, biased=by.biased)
        scale = torch.where(spread > 0, spread + by.epsilon, torch.full_like(spread, torch.inf))
    if by.leave_one_out:
        count = group_counts(group=populations[by.mean], live=live)
        relative = relative * count / (count - 1).clamp(min=1)
    return relative / scale
