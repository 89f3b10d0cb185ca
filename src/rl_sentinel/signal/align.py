"""The one place where positions are shifted: from full sequences to responses, from rows to tokens."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def response_aligned(
    values: Float[Tensor, "B S"],
    *,
    prompt_length: Int[Tensor, " B"],
    length: Int[Tensor, " B"],
    width: int,
    predicts_next: bool,
) -> Float[Tensor, "B T"]:
    """Values of response tokens, from values of full sequences of prompt, response and padding.

    Args:
        values: one number per position of the sequence.
        prompt_length: tokens of each prompt, in tokens.
        length: tokens of each response, in tokens.
        width: number of response positions ``T`` of the result.
        predicts_next: True where position t holds what belongs to token t + 1 (log-probs of a
            model's logits), False where it holds what belongs to token t.

    Returns:
        Response token t at position t; 0 after the response.

    Raises:
        ValueError: if a response lies outside its sequence.

    Example:
        >>> sequence = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
        >>> one = torch.tensor([2])
        >>> response_aligned(sequence, prompt_length=one, length=one, width=2, predicts_next=True)
        tensor([[0.2000, 0.3000]])
    """
    first = prompt_length - int(predicts_next)
    last = first + length
    outside = (first < 0) | (last > values.shape[1]) | (length > width)
    if bool(outside.any()):
        row = int(torch.nonzero(outside)[0])
        message = (
            f"response[{row}] is at {int(first[row])} to {int(last[row])}, expected a place within "
            f"{values.shape[1]} positions and at most {width} tokens"
        )
        raise ValueError(message)
    position = torch.arange(width, device=values.device)
    found = values.gather(1, (first.unsqueeze(1) + position).clamp(max=values.shape[1] - 1))
    return torch.where(position < length.unsqueeze(1), found, torch.zeros_like(found))


def spread(row: Float[Tensor, " B"], *, mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """A row's number at each of its trained tokens, and exactly 0 elsewhere.

    Example:
        >>> spread(torch.tensor([2.0]), mask=torch.tensor([[True, False]]))
        tensor([[2., 0.]])
    """
    return torch.where(mask, row.unsqueeze(1), torch.zeros_like(row).unsqueeze(1))


def at_last(row: Float[Tensor, " B"], *, mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """A row's number at its last trained token, and exactly 0 elsewhere.

    Example:
        >>> at_last(torch.tensor([2.0, 3.0]), mask=torch.tensor([[True, True, False], [False, False, False]]))
        tensor([[0., 2., 0.],
                [0., 0., 0.]])
    """
    later = mask.flip(1).cumsum(1).flip(1)
    return spread(row, mask=mask & (later == 1))
