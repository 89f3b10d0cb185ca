"""Token losses with hand-written derivatives, for :func:`~rl_sentinel.signal.kernels.blocks.fused`.

Each function named like a loss returns minus this loss at each token, and its slope: the derivative by the first
column.
"""

import torch
from torch import Tensor

from rl_sentinel.signal.align import spread
from rl_sentinel.signal.kernels.blocks import Sloped
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import row_means, selected
from rl_sentinel.signal.segments import Mask


def cispo(  # noqa: PLR0913 - the columns and numbers of the loss
    mask: Tensor, logprob: Tensor, old_logprob: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float
) -> Sloped:
    """CISPO: the derivative treats the weight as a constant."""
    current, gained = selected(logprob, mask=mask), selected(advantage, mask=mask)
    ratio = selected(logprob - old_logprob, mask=mask).exp().detach()
    slope = ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    return slope * current, slope


def clip_cov(  # noqa: PLR0913 - the columns and numbers of the loss
    mask: Tensor,
    logprob: Tensor,
    old_logprob: Tensor,
    advantage: Tensor,
    chosen: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Sloped:
    """Clip-Cov: chosen tokens that PPO does not clip have value 0 and derivative 0."""
    ratio, gained = exponential(selected(logprob - old_logprob, mask=mask)), selected(advantage, mask=mask)
    plain, held = weighed(ratio, gained), ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    moves = plain <= held
    return selected(torch.minimum(plain, held), mask=~(chosen & moves)), selected(plain, mask=moves & ~chosen)


def dual_clip(  # noqa: PLR0913 - the columns and numbers of the loss
    mask: Tensor,
    logprob: Tensor,
    old_logprob: Tensor,
    advantage: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    ceiling: float,
) -> Sloped:
    """Dual clip: the derivative is 0 where the loss is clipped."""
    ratio, gained = exponential(selected(logprob - old_logprob, mask=mask)), selected(advantage, mask=mask)
    plain, held = weighed(ratio, gained), ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    least = torch.where(gained < 0, ceiling * gained, -torch.inf)
    moves = (plain <= held) & (plain >= least)
    return torch.maximum(torch.minimum(plain, held), least), torch.where(moves, plain, 0.0)


def gspo(  # noqa: PLR0913 - the columns and numbers of the loss
    mask: Tensor, logprob: Tensor, together: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float
) -> Sloped:
    """GSPO: ``together`` is the mean log-ratio of each token's response."""
    current, gained = selected(logprob, mask=mask), selected(advantage, mask=mask)
    ratio = exponential(together + (current - current.detach()))
    plain, held = weighed(ratio, gained), ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    return torch.minimum(plain, held), selected(plain, mask=plain <= held)


def importance_sampling(mask: Tensor, logprob: Tensor, old_logprob: Tensor, advantage: Tensor) -> Sloped:
    """Importance sampling: the derivative equals the value."""
    ratio = exponential(selected(logprob - old_logprob, mask=mask))
    value = weighed(ratio, selected(advantage, mask=mask))
    return value, value


def kl_cov(  # noqa: PLR0913 - the columns and numbers of the loss
    mask: Tensor, logprob: Tensor, old_logprob: Tensor, advantage: Tensor, chosen: Tensor, *, penalty: float
) -> Sloped:
    """KL-Cov: ratio times advantage, minus ``penalty`` times the absolute log-ratio at chosen tokens."""
    log_ratio = selected(logprob - old_logprob, mask=mask)
    plain, held = weighed(exponential(log_ratio), selected(advantage, mask=mask)), selected(log_ratio, mask=chosen)
    return plain - penalty * held.abs(), plain - penalty * held.sign()


def ppo(  # noqa: PLR0913 - the columns and numbers of the loss
    mask: Tensor, logprob: Tensor, old_logprob: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float
) -> Sloped:
    """PPO: the derivative is 0 where the loss is clipped."""
    ratio, gained = exponential(selected(logprob - old_logprob, mask=mask)), selected(advantage, mask=mask)
    plain, held = weighed(ratio, gained), ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    return torch.minimum(plain, held), selected(plain, mask=plain <= held)


def sapo(  # noqa: PLR0913 - the columns and numbers of the loss
    mask: Tensor,
    logprob: Tensor,
    old_logprob: Tensor,
    advantage: Tensor,
    *,
    temperature: float,
    negative_temperature: float,
) -> Sloped:
    """SAPO: the gate is a sigmoid, whose derivative is the sigmoid times 1 minus the sigmoid."""
    ratio, gained = exponential(selected(logprob - old_logprob, mask=mask)), selected(advantage, mask=mask)
    steep = torch.where(gained > 0, gained.new_full((), temperature), gained.new_full((), negative_temperature))
    gate = torch.sigmoid(steep * (ratio - 1))
    return gate * 4 / steep * gained, weighed(ratio, gate * (1 - gate) * 4 * gained)


def gspo_columns(logprob: Tensor, old_logprob: Tensor, advantage: Tensor, *, mask: Mask) -> list[Tensor]:
    """The columns of :func:`gspo`: the mean log-ratio of a response needs the whole row."""
    together = row_means(selected(logprob, mask=mask) - old_logprob, mask=mask).detach()
    return [logprob, spread(together, mask=mask), advantage]
