"""Mini-batches of whole prompts: one optimizer step each, whatever the number of turns."""

import torch
from jaxtyping import Int
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.groups import places
from rl_sentinel.signal.reduce import Aggregation, Mode, live_rows, row_counts
from rl_sentinel.signal.requirements import POSITIVE_COUNT, require_range
from rl_sentinel.signal.segments import Mask, trained
from rl_sentinel.signal.validation import validate


@validate(prompts=POSITIVE_COUNT)
def prompt_minibatches(
    group: Int[Tensor, " B"], *, prompts: int, generator: torch.Generator | None
) -> list[Int[Tensor, " n"]]:
    """Split rows into mini-batches; all rows of a prompt are in the same mini-batch.

    Args:
        group: prompt id per row; any integers, rows in any order.
        prompts: prompts per mini-batch, at least 1.
        generator: shuffles the prompts; None leaves them in the order of their first rows.

    Returns:
        Row numbers of each mini-batch, ascending; together every row once. The last mini-batch has fewer
        prompts if their number does not divide evenly.

    Raises:
        InputError: if ``prompts`` is below 1, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.minibatches import prompt_minibatches
        >>> group = torch.tensor([7, 7, 3, 7, 5])
        >>> [rows.tolist() for rows in prompt_minibatches(group, prompts=2, generator=None)]
        [[0, 1, 2, 3], [4]]
    """
    prompts = int(prompts)  # 2.0 is a whole number too
    ids, place = torch.unique(group.long(), return_inverse=True)
    first = torch.full_like(ids, len(group)).scatter_reduce(
        0, place, torch.arange(len(group), device=group.device), "amin"
    )
    order = first.argsort()
    if generator is not None:
        order = torch.randperm(len(ids), generator=generator, device=generator.device).to(group.device)
    turn = torch.empty_like(order).scatter(0, order, torch.arange(len(ids), device=group.device))[place]
    return [torch.nonzero(turn // prompts == n).squeeze(1) for n in range(-(-len(ids) // prompts))]


@validate()
def aggregation(
    mode: Mode, *, mask: Mask, length: int | None = None, group: Int[Tensor, " B"] | None = None
) -> Aggregation:
    """Build the aggregation of a mini-batch, with its denominator counted over the whole mask.

    Args:
        mode: as for ``reduce.Aggregation``.
        mask: True on trained tokens of the whole mini-batch, of all micro-batches. Over several ranks,
            add up the counts and make the ``Aggregation`` of their sum instead, or use :func:`prompt_mean`.
        length: tokens that each row's sum is divided by, for ``"token-sum"`` alone: the fixed length
            of Dr. GRPO.
        group: prompt id per row, for ``"prompt-mean"``; any integers, rows in any order. Other modes do not use it.

    Returns:
        The mode with its denominator: trained tokens, live rows, live rows times ``length``, or prompts with a trained
        token; 1 if nothing is trained. For a part of the mini-batch, use its ``of_rows``.

    Raises:
        InputError: if ``length`` is missing for ``"token-sum"``, given for another mode, or below 1; if ``group`` is
            missing for ``"prompt-mean"``; or if a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.minibatches import aggregation
        >>> mask = torch.tensor([[True, True], [True, False], [False, False]])
        >>> [aggregation(mode, mask=mask).denominator for mode in ("token-mean", "sequence-mean-token-sum")]
        [3.0, 2.0]
        >>> whole = aggregation("prompt-mean", mask=mask, group=torch.tensor([7, 7, 3]))
        >>> whole.denominator, whole.prompt_tokens
        (1.0, tensor([3, 3, 0]))
    """
    if length is None and mode == "token-sum":
        raise InputError("length is None with 'token-sum', expected a number of tokens: the sum is divided by length")
    if length is not None and mode != "token-sum":
        raise InputError(f"length is {length} with {mode!r}, expected None: only 'token-sum' uses a length")
    if length is not None:
        require_range("length", length, POSITIVE_COUNT)
    if mode == "prompt-mean":
        if group is None:
            raise InputError("group is None with 'prompt-mean', expected the prompt id of each row")
        return prompt_mean(row_counts(mask=mask), group=group)
    rows = int(live_rows(mask).sum())
    count = int(trained(mask).sum()) if mode == "token-mean" else rows * (length or 1)
    return Aggregation(mode, float(max(count, 1)))


@validate()
def prompt_mean(tokens: Int[Tensor, " B"], *, group: Int[Tensor, " B"]) -> Aggregation:
    r"""Build the aggregation that averages tokens within each prompt, then prompts, from token counts of all rows.

    .. math:: \frac{1}{P} \sum_{p} \frac{1}{n_p} \sum_{b \in p} \sum_{t} x_{b,t}

    Over several ranks, gather ``tokens`` and ``group`` of all rows; each rank then uses ``of_rows`` for its rows.

    Args:
        tokens: number of trained tokens per row, as from ``reduce.row_counts``.
        group: prompt id per row; any integers, rows in any order.

    Returns:
        The aggregation of these rows; its denominator is the number of prompts with a trained token, at least 1.

    Raises:
        InputError: if a count is below 0, or a dtype or shape is wrong.

    Source:
        SkyRL's ``prompt_mean`` (0.3.0, ``apply_loss_reduction_to_advantages_minibatch``), where each advantage is
        divided by prompts times tokens of its prompt; a prompt without a trained token counts there, and not here.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.minibatches import prompt_mean
        >>> whole = prompt_mean(torch.tensor([2, 1, 4, 0]), group=torch.tensor([7, 7, 3, 5]))
        >>> whole.denominator, whole.prompt_tokens
        (2.0, tensor([3, 3, 4, 0]))
    """
    tokens = tokens.long()
    if bool((tokens < 0).any()):
        row = int(torch.nonzero(tokens < 0)[0])
        raise InputError(f"tokens[{row}] is {int(tokens[row])}, expected 0 or more: trained tokens are counted")
    place = places(group)
    whole = torch.zeros_like(tokens).index_add(0, place, tokens)
    return Aggregation("prompt-mean", float(max(int((whole > 0).sum()), 1)), whole[place])
