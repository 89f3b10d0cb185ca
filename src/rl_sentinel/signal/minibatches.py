"""Mini-batches counted in prompts: one optimizer step each, however many turns a prompt's responses have."""

import torch
from jaxtyping import Int
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.checks import checked, within
from rl_sentinel.signal.reduce import Aggregation, Mode, live_rows
from rl_sentinel.signal.segments import Mask, trained


def prompt_minibatches(
    group: Int[Tensor, " B"], *, prompts: int, generator: torch.Generator | None
) -> list[Int[Tensor, " n"]]:
    """Rows of each mini-batch; all rows of a prompt are in the same one.

    Args:
        group: prompt id per row; any integers, rows in any order.
        prompts: prompts per mini-batch, at least 1.
        generator: shuffles the prompts; None leaves them in the order of their first rows.

    Returns:
        Row numbers of each mini-batch, ascending; together every row once. The last one has fewer
        prompts where they do not divide.

    Raises:
        InputError: if ``prompts`` is below 1, or a shape or kind is wrong.

    Example:
        >>> group = torch.tensor([7, 7, 3, 7, 5])
        >>> [rows.tolist() for rows in prompt_minibatches(group, prompts=2, generator=None)]
        [[0, 1, 2, 3], [4]]
    """
    checked("B", group=group)
    within("prompts", prompts, least=1)
    ids, place = torch.unique(group, return_inverse=True)
    first = torch.full_like(ids, len(group)).scatter_reduce(
        0, place, torch.arange(len(group), device=group.device), "amin"
    )
    order = first.argsort() if generator is None else torch.randperm(len(ids), generator=generator).to(group.device)
    turn = torch.empty_like(order).scatter(0, order, torch.arange(len(ids), device=group.device))[place]
    return [torch.nonzero(turn // prompts == n).squeeze(1) for n in range(-(-len(ids) // prompts))]


def aggregation(mode: Mode, *, mask: Mask, length: int | None = None) -> Aggregation:
    """How a mini-batch's token losses become one number, counted over all that the mask holds.

    Args:
        mode: as for ``reduce.Aggregation``.
        mask: True on trained tokens of the whole mini-batch, of all micro-batches; over several ranks
            add up the counts and make the ``Aggregation`` of their sum instead.
        length: tokens that each row's sum is divided by, for ``"token-sum"`` alone: the fixed length
            of Dr. GRPO.

    Returns:
        The mode with its denominator: trained tokens, live rows, or live rows times ``length``; 1 where
        nothing is trained.

    Raises:
        InputError: if the mask is none, or ``length`` is missing for ``"token-sum"``, given for another mode, or
            below 1.

    Example:
        >>> mask = torch.tensor([[True, True], [True, False], [False, False]])
        >>> [aggregation(mode, mask=mask).denominator for mode in ("token-mean", "sequence-mean-token-sum")]
        [3.0, 2.0]
    """
    if (length is None) == (mode == "token-sum") or (length is not None and length < 1):
        raise InputError(
            f"length is {length} with {mode!r}, expected a number of tokens for 'token-sum', None for the others"
        )
    checked("B T", mask=mask)
    rows = int(live_rows(mask).sum())
    count = int(trained(mask).sum()) if mode == "token-mean" else rows * (length or 1)
    return Aggregation(mode, float(max(count, 1)))
