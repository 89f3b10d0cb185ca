"""Sums and means over trained tokens with explicit denominators; NaN and infinity off the mask have no effect."""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where
from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.kernels import bits
from rl_sentinel.signal.segments import Mask, Segments, rows_taken, trained
from rl_sentinel.signal.validation import validate, validate_record

Mode = Literal["token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum", "token-sum", "prompt-mean"]


@validate(rows=True)
def selected(values: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """The values at trained tokens and exactly 0 elsewhere, also instead of NaN and infinity.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reduce import selected
        >>> selected(torch.tensor([[1.0, torch.nan]]), mask=torch.tensor([[True, False]]))
        tensor([[1., 0.]])
    """
    return bits.zeroed(values, trained(mask))


@validate()
def row_sums(values: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, " B"]:
    """The sum over each row's trained tokens; 0 for a row without any.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reduce import row_sums
        >>> from rl_sentinel.signal.segments import Segments
        >>> row_sums(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
        tensor([3., 0.])
        >>> row_sums(torch.tensor([1.0, 2.0, 5.0]), mask=Segments(torch.ones(3).bool(), torch.tensor([2, 1])))
        tensor([3., 5.])
    """
    kept = selected(values, mask=mask)
    if not isinstance(mask, Segments):
        return kept.sum(dim=1)
    empty = torch.zeros(len(mask.length), dtype=torch.float64, device=kept.device)  # as wide as a padded sum, and wider
    return empty.index_add(0, mask.row, kept.double()).to(kept.dtype)


@validate()
def row_counts(*, mask: Mask) -> Int[Tensor, " B"]:
    """The number of trained tokens of each row.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reduce import row_counts
        >>> row_counts(mask=torch.tensor([[True, True], [False, False]]))
        tensor([2, 0])
    """
    if not isinstance(mask, Segments):
        return bits.count_true(mask)
    return torch.zeros_like(mask.length).index_add(0, mask.row, mask.mask.to(mask.length.dtype))


@validate()
def live_rows(mask: Mask) -> Bool[Tensor, " B"]:
    """``[B]``: True for rows with a trained token.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reduce import live_rows
        >>> live_rows(torch.tensor([[True, True], [False, False]]))
        tensor([ True, False])
    """
    if isinstance(mask, Segments):
        return row_counts(mask=mask) > 0
    return bits.any_true(mask)


@validate()
def row_means(values: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, " B"]:
    """The mean over each row's trained tokens; 0 for a row without any.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reduce import row_means
        >>> row_means(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
        tensor([1.5000, 0.0000])
    """
    wide = values.to(torch.promote_types(values.dtype, torch.float32))  # a sum may overflow the dtype
    return (row_sums(wide, mask=mask) / row_counts(mask=mask).clamp(min=1)).to(values.dtype)


@validate()
def row_maxima(values: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, " B"]:
    """The largest value at each row's trained tokens; minus infinity for a row without a trained token.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reduce import row_maxima
        >>> row_maxima(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
        tensor([2., -inf])
    """
    kept = torch.where(trained(mask), values, torch.full_like(values, -torch.inf))
    if not isinstance(mask, Segments):
        return kept.amax(dim=1) if kept.shape[1] else kept.new_full((len(kept),), -torch.inf)
    lowest = torch.full((len(mask.length),), -torch.inf, dtype=kept.dtype, device=kept.device)
    return lowest.scatter_reduce(0, mask.row, kept, "amax")


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """How token losses are summed or averaged to a scalar, with an explicit denominator.

    ``denominator`` is counted over the whole mini-batch and all ranks, never over the micro-batch at
    hand: trained tokens for ``"token-mean"``, live rows for the two sequence means, prompts with a trained token for
    ``"prompt-mean"``; a ``"token-sum"`` may be divided by any number, such as rows times a fixed length.

    ``"prompt-mean"`` is the mean over prompts of the mean over all trained tokens of a prompt's rows. Rows of one
    prompt may fall into several micro-batches or ranks, so each row carries its divisor: ``prompt_tokens`` ``[B]``,
    the number of trained tokens of its prompt in the whole mini-batch over all ranks. ``minibatches.aggregation``
    counts them, and :meth:`of_rows` selects the counts of some rows.
    """

    mode: Mode
    denominator: float
    prompt_tokens: Int[Tensor, " B"] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Validate the denominator, and that ``prompt_tokens`` is given exactly for ``"prompt-mean"``."""
        validate_record(self)
        if not 0 < self.denominator < torch.inf:
            raise InputError(
                f"denominator is {self.denominator!r}, expected a positive finite number: "
                "count trained tokens or live rows of the whole mini-batch"
            )
        if (self.prompt_tokens is None) == (self.mode == "prompt-mean"):
            raise InputError(
                "prompt_tokens is None, expected the number of trained tokens of each row's prompt with mode "
                "'prompt-mean': minibatches.aggregation counts them"
                if self.prompt_tokens is None
                else f"prompt_tokens is given, expected None with mode {self.mode!r}: only 'prompt-mean' uses it"
            )
        if self.prompt_tokens is not None:
            object.__setattr__(self, "prompt_tokens", self.prompt_tokens.long())

    def __eq__(self, other: object) -> bool:
        """Whether mode, denominator and ``prompt_tokens`` are equal."""
        if not isinstance(other, Aggregation) or (self.mode, self.denominator) != (other.mode, other.denominator):
            return False
        mine, theirs = self.prompt_tokens, other.prompt_tokens
        return mine is theirs or (mine is not None and theirs is not None and torch.equal(mine, theirs))

    def __hash__(self) -> int:
        """The hash of mode and denominator; ``prompt_tokens`` is left out."""
        return hash((self.mode, float(self.denominator)))

    def of_rows(self, rows: Int[Tensor, " n"]) -> Self:
        """The aggregation of some rows of the mini-batch; only ``"prompt-mean"`` depends on them.

        Example:
            >>> import torch
            >>> from rl_sentinel.signal.reduce import Aggregation
            >>> whole = Aggregation("prompt-mean", 2.0, torch.tensor([3, 3, 1]))
            >>> whole.of_rows(torch.tensor([2])).prompt_tokens
            tensor([1])
            >>> Aggregation("token-mean", 4.0).of_rows(torch.tensor([2]))
            Aggregation(mode='token-mean', denominator=4.0)
        """
        if self.prompt_tokens is None:
            return self
        return replace(self, prompt_tokens=self.prompt_tokens[rows_taken(self.prompt_tokens.unsqueeze(1) > 0, rows)[1]])

    def shares(self, *, mask: Mask) -> Int[Tensor, " B"] | None:
        """The divisor of each row's sum before rows are added up, at least 1; None if rows are not divided.

        Raises:
            InputError: if ``prompt_tokens`` do not fit the rows: not as many, or fewer tokens than a row has.

        Example:
            >>> import torch
            >>> from rl_sentinel.signal.reduce import Aggregation
            >>> mask = torch.tensor([[True, True], [True, False]])
            >>> Aggregation("sequence-mean-token-mean", 2.0).shares(mask=mask)
            tensor([2, 1])
        """
        if self.mode not in {"sequence-mean-token-mean", "prompt-mean"}:
            return None
        counts = row_counts(mask=mask)
        if self.prompt_tokens is None:
            return counts.clamp(min=1)
        tokens = self.prompt_tokens
        if tokens.shape != counts.shape:
            raise InputError(
                f"prompt_tokens has shape {list(tokens.shape)}, expected {list(counts.shape)}: one for each row"
            )
        refuse_where(
            tokens < counts,
            lambda at: (
                f"prompt_tokens{at} is {int(tokens[at[0]])}, expected {int(counts[at[0]])} or more, "
                "the trained tokens of the row: count over the whole mini-batch, and use of_rows for a part of it"
            ),
        )
        return tokens.clamp(min=1)


@validate()
def aggregate(values: Float[Tensor, "*S"], *, mask: Mask, aggregation: Aggregation) -> Float[Tensor, ""]:
    """Reduce values per token to a scalar; the results of a mini-batch's parts add up to the result of the whole.

    Args:
        values: one number per token; values off the mask are ignored.
        mask: True on trained tokens.
        aggregation: the mode and the denominator.

    Returns:
        The sum over rows of each row's sum, mean or part of its prompt's mean, divided by the denominator.

    Raises:
        InputError: if a dtype or shape is wrong, or ``prompt_tokens`` do not fit the rows.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reduce import Aggregation, aggregate
        >>> values = torch.tensor([[1.0, 3.0], [8.0, 0.0]])
        >>> mask = torch.tensor([[True, True], [True, False]])
        >>> aggregate(values, mask=mask, aggregation=Aggregation("token-mean", 3.0))
        tensor(4.)
        >>> aggregate(values, mask=mask, aggregation=Aggregation("sequence-mean-token-mean", 2.0))
        tensor(5.)
        >>> aggregate(values, mask=mask, aggregation=Aggregation("prompt-mean", 1.0, torch.tensor([3, 3])))
        tensor(4.)
    """
    wide = values.to(torch.promote_types(values.dtype, torch.float32))  # a sum may overflow the dtype
    sums, share = row_sums(wide, mask=mask), aggregation.shares(mask=mask)
    return ((sums if share is None else sums / share).sum() / aggregation.denominator).to(values.dtype)
