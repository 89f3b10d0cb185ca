"""Alignment: from positions of full sequences to response tokens, and from rows to tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where
from rl_sentinel.signal.requirements import COUNT
from rl_sentinel.signal.segments import Mask, Segments, trained
from rl_sentinel.signal.validation import validate


@validate(width=COUNT)
def response_aligned(
    values: Float[Tensor, "B S"],
    *,
    prompt_length: Int[Tensor, " B"],
    length: Int[Tensor, " B"],
    width: int,
    predicts_next: bool,
) -> Float[Tensor, "B T"]:
    """Extract the values of response tokens from sequences of prompt, response and padding.

    Args:
        values: one number per position of the sequence.
        prompt_length: tokens of each prompt, in tokens.
        length: tokens of each response, in tokens.
        width: number of response positions ``T`` of the result.
        predicts_next: True if position t holds the value of token t + 1 (log-probs of a model's logits), False if it
            holds the value of token t.

    Returns:
        Response token t at position t; 0 after the response.

    Raises:
        InputError: if a response lies outside its sequence or is longer than ``width``, a length is negative, or a
            dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.align import response_aligned
        >>> sequence = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
        >>> one = torch.tensor([2])
        >>> response_aligned(sequence, prompt_length=one, length=one, width=2, predicts_next=True)
        tensor([[0.2000, 0.3000]])
    """
    width, prompt_length, length = int(width), prompt_length.long(), length.long()
    first = prompt_length - int(predicts_next)
    last = first + length
    outside = (first < 0) | (length < 0) | (last > values.shape[1]) | (length > width)
    refuse_where(
        outside,
        lambda at: (
            f"response{at} spans positions {int(first[at[0]])} to {int(last[at[0]])} (prompt_length "
            f"{int(prompt_length[at[0]])}, length {int(length[at[0]])}), expected 0 to {width} tokens (width) within "
            f"positions 0 to {values.shape[1]}"
        ),
    )
    position = torch.arange(width, device=values.device)
    if values.shape[1] == 0:  # without positions, no response has a token
        return values.new_zeros(len(values), width)
    aligned = values.gather(1, (first.unsqueeze(1) + position).clamp(max=values.shape[1] - 1))
    return torch.where(position < length.unsqueeze(1), aligned, torch.zeros_like(aligned))


@validate()
def spread(row: Float[Tensor, " B"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """Repeat a row's value at each of its trained tokens; exactly 0 elsewhere.

    Raises:
        InputError: if a dtype is wrong, or there is not one number for each row.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.align import spread
        >>> from rl_sentinel.signal.segments import Segments
        >>> spread(torch.tensor([2.0]), mask=torch.tensor([[True, False]]))
        tensor([[2., 0.]])
        >>> spread(torch.tensor([2.0, 3.0]), mask=Segments(torch.tensor([True, False, True]), torch.tensor([2, 1])))
        tensor([2., 0., 3.])
    """
    wide = row[mask.row] if isinstance(mask, Segments) else row.unsqueeze(1)
    return torch.where(trained(mask), wide, torch.zeros_like(wide))


@validate()
def at_last(row: Float[Tensor, " B"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """Place a row's value at its last trained token; exactly 0 elsewhere.

    Raises:
        InputError: if a dtype is wrong, or there is not one number for each row.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.align import at_last
        >>> at_last(torch.tensor([2.0, 3.0]), mask=torch.tensor([[True, True, False], [False, False, False]]))
        tensor([[0., 2., 0.],
                [0., 0., 0.]])
    """
    if not isinstance(mask, Segments):
        later = mask.flip(1).cumsum(1).flip(1)
        return spread(row, mask=mask & (later == 1))
    place = torch.arange(len(mask.row), device=mask.row.device)
    last = torch.full_like(mask.length, -1)
    last = last.scatter_reduce(0, mask.row, place.masked_fill(~mask.mask, -1).to(last.dtype), "amax")
    return spread(row, mask=Segments(place == last[mask.row], mask.length))
