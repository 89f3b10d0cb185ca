"""``Ready``, the output of the signal path; functions that split it into mini-batches and mask off-policy responses."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.signal import align
from rl_sentinel.signal.correction.trust import off_policy_sequences_kept, rejected_fraction
from rl_sentinel.signal.minibatches import prompt_minibatches
from rl_sentinel.signal.ratios import weighed
from rl_sentinel.signal.reduce import live_rows, selected
from rl_sentinel.signal.requirements import require_columns
from rl_sentinel.signal.segments import Mask, narrowed, rows_taken
from rl_sentinel.signal.validation import validate, validate_record


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ready:
    """Output of the signal path: the inputs of a loss, a critic, a log and a controller.

    A column that was not computed is None.

    Attributes:
        mask: True on the tokens to train after rejection, padded or packed.
        live, kept: True for rows with a trained token before rejection, and after it.
        group: prompt id of each row.
        reward: the outcome as the estimator compared it, in reward units or standard deviations.
        advantage: one number per row if ``outcome``, else one per token.
        outcome: whether the estimator computes one advantage per row.
        kl: the raw KL, in nats per token.
        weight: factor of each token's advantage, a ratio.
        returns: the targets of a critic, in reward units.
    """

    mask: Mask
    live: Bool[Tensor, " B"]
    kept: Bool[Tensor, " B"]
    group: Int[Tensor, " B"]
    reward: Float[Tensor, " B"]
    advantage: Float[Tensor, " B"] | Float[Tensor, "*S"]
    outcome: bool
    kl: Float[Tensor, "*S"] | None = None
    weight: Float[Tensor, "*S"] | None = None
    returns: Float[Tensor, "*S"] | None = None

    def __post_init__(self) -> None:
        """Validate dtypes and shapes of all columns."""
        validate_record(self)
        if self.outcome:
            require_columns(self.live, "as in live", advantage=self.advantage)
        else:
            require_columns(self.mask, advantage=self.advantage)

    def token_advantage(self) -> Float[Tensor, "*S"]:
        """The advantage that a loss takes: each token's advantage times its weight; exactly 0 off the mask.

        Multiplying the advantage is valid for a loss with :math:`L(w A) = w L(A)` for weights of 0 or more, as PPO's.
        """
        wide = align.spread(self.advantage, mask=self.mask) if self.outcome else self.advantage
        return wide if self.weight is None else selected(weighed(self.weight, wide), mask=self.mask)


@validate()
def prompts_apart(ready: Ready, *, prompts: int, generator: torch.Generator | None) -> list[Ready]:
    """Split into mini-batches of a number of prompts, one optimizer step each.

    Args:
        ready: the output of ``path.loss_ready``.
        prompts: prompts per mini-batch, at least 1; all rows of a prompt, and of its trajectories, go together.
        generator: shuffles the prompts; None leaves them in order.

    Returns:
        Mini-batches; together every row once. ``minibatches.aggregation`` counts their denominators.

    Raises:
        InputError: if ``prompts`` is below 1.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.ready import Ready, prompts_apart
        >>> live = torch.ones(3, 1).bool()
        >>> one = Ready(mask=live, live=live[:, 0], kept=live[:, 0], group=torch.tensor([4, 2, 4]),
        ...             reward=torch.zeros(3), advantage=torch.tensor([1.0, 0.0, -1.0]), outcome=True)
        >>> [part.advantage.tolist() for part in prompts_apart(one, prompts=1, generator=None)]
        [[1.0, -1.0], [0.0]]
    """
    return [_rows(ready, rows) for rows in prompt_minibatches(ready.group, prompts=prompts, generator=generator)]


class Trusted(NamedTuple):
    """The mask after off-policy sequence masking, and the share of responses that were dropped."""

    mask: Mask
    dropped_fraction: Float[Tensor, ""]


@validate()
def trusted(
    ready: Ready,
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    *,
    threshold: float,
    denominator: float,
) -> Trusted:
    """Apply off-policy sequence masking at the time of an update; each response counts once.

    Args:
        ready: the mini-batch, or a micro-batch of it.
        logprob: log-probs of the policy as it is now, in nats.
        old_logprob: log-probs of the policy before the update, in nats.
        threshold: how far the policy may have moved away, in nats per token.
        denominator: live rows of the whole mini-batch over all ranks, a count.

    Returns:
        The mask for the loss, and this part's share of dropped responses. The loss keeps the denominators of
        ``ready.mask``.

    Raises:
        InputError: as ``trust.off_policy_sequences_kept`` and ``trust.rejected_fraction``.

    Source:
        Off-Policy Sequence Masking, DeepSeek-V3.2, arXiv 2512.02556.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.ready import Ready, trusted
        >>> mask = torch.ones(1, 3).bool()
        >>> one = Ready(mask=mask, live=mask[:, 0], kept=mask[:, 0], group=torch.tensor([0]), reward=torch.zeros(1),
        ...             advantage=torch.tensor([[-0.5, 0.25, -0.25]]), outcome=False)
        >>> trusted(one, torch.zeros(1, 3), torch.ones(1, 3), threshold=0.1, denominator=1.0)
        Trusted(mask=tensor([[False, False, False]]), dropped_fraction=tensor(1.))
    """
    wide = align.spread(ready.advantage, mask=ready.mask) if ready.outcome else ready.advantage
    keep = off_policy_sequences_kept(logprob, old_logprob, wide, mask=ready.mask, threshold=threshold)
    lost = rejected_fraction(keep, live=live_rows(ready.mask), denominator=denominator)
    return Trusted(narrowed(ready.mask, keep, of_rows=True), lost)


def _rows(ready: Ready, rows: Tensor) -> Ready:
    mask, places = rows_taken(ready.mask, rows)
    return replace(
        ready,
        mask=mask,
        advantage=ready.advantage[rows if ready.outcome else places],
        live=ready.live[rows],
        kept=ready.kept[rows],
        group=ready.group[rows],
        reward=ready.reward[rows],
        kl=None if ready.kl is None else ready.kl[places],
        weight=None if ready.weight is None else ready.weight[places],
        returns=None if ready.returns is None else ready.returns[places],
    )
