"""ReMax: rewards minus the reward of the greedy response to the same prompt."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.signal.requirements import require_finite
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "remax",
    "scope": "sequence",
    "credit": "outcome",
    "standardized": "no",
    "masked": "yes",
    "masked-slots": "any",
}


@validate(finite="reward reward_baseline")
def advantages(
    reward: Float[Tensor, " B"], reward_baseline: Float[Tensor, " B"], *, live: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    r"""Subtract the reward that the greedy response to the same prompt got.

    .. math:: A_b = r_b - r^{greedy}_b

    Args:
        reward: task reward per response, in reward units.
        reward_baseline: task reward of the greedy response to the same prompt, in reward units.
        live: True where the response has at least one trained token.

    Returns:
        Advantage per response, in reward units; exactly 0 where ``live`` is False.

    Raises:
        InputError: if the difference is not finite on a live row, or a dtype or shape is wrong.

    Source:
        ReMax, arXiv 2310.10505.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.remax import advantages
        >>> reward, live = torch.tensor([1.0, 0.0]), torch.tensor([True, True])
        >>> advantages(reward, torch.tensor([0.5, 0.5]), live=live)
        tensor([ 0.5000, -0.5000])
    """
    relative = reward - reward_baseline
    why = "the difference overflows the dtype (scale both down)"
    require_finite("reward - reward_baseline", relative, where=live, why=why)
    return torch.where(live, relative, torch.zeros_like(relative))
