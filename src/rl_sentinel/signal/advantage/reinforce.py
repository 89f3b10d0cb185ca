"""REINFORCE: the advantage of each live response is its reward, without a baseline."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "outcome",
    "scope": "sequence",
    "credit": "outcome",
    "standardized": "no",
    "masked": "yes",
    "masked-slots": "any",
}


@validate(finite="reward")
def advantages(reward: Float[Tensor, " B"], *, live: Bool[Tensor, " B"]) -> Float[Tensor, " B"]:
    r"""Use the reward of each live response as its advantage.

    .. math:: A_b = r_b

    Use it for rewards that were already normalized over their group or batch
    (``rl_sentinel.signal.normalization``). A response whose reward is then 0, such as a suppressed one, has no
    gradient; a second baseline would give it one that depends on its siblings.

    Args:
        reward: task reward per response, in reward units.
        live: True where the response has at least one trained token.

    Returns:
        Advantage per response, in reward units; exactly 0 where ``live`` is False.

    Raises:
        InputError: if ``reward`` is not finite on a live row, or a dtype or shape is wrong.

    Source:
        Williams, Simple statistical gradient-following algorithms for connectionist reinforcement learning
        (Machine Learning 8, 1992), with a baseline of 0.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.reinforce import advantages
        >>> advantages(torch.tensor([3.0, -1.0, 9.0]), live=torch.tensor([True, True, False]))
        tensor([ 3., -1.,  0.])
    """
    return torch.where(live, reward, torch.zeros_like(reward))
