"""Log-probs and entropy of tokens from logits."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.core.refusal import refuse_where
from rl_sentinel.signal.kernels import sizes, softmax
from rl_sentinel.signal.kernels.modes import traced
from rl_sentinel.signal.requirements import POSITIVE, explain_result
from rl_sentinel.signal.validation import validate


@validate(temperature=POSITIVE)
def logprobs(
    logits: Float[Tensor, "*rows V"], token: Int[Tensor, "*rows"], *, mask: Bool[Tensor, "*rows"], temperature: float
) -> Float[Tensor, "*rows"]:
    r"""The log-prob of each token under its logits.

    .. math:: \log \pi_t = \frac{x_{t, a_t}}{\tau} - \log \sum_v \exp \frac{x_{t, v}}{\tau}

    Args:
        logits: one row of logits per position, of any floating dtype; the gradient is taken to these.
        token: the token whose log-prob is asked, at the position of the logits that predict it.
        mask: True where the log-prob is wanted; logits elsewhere are not read.
        temperature: what logits are divided by, above 0; the one that sampled the token.

    Returns:
        Log-probs in nats, in float32 or wider; exactly 0, with gradient 0, where ``mask`` is False.

    Raises:
        InputError: if ``temperature`` is not above 0, a wanted token lies outside the vocabulary, or
            shapes disagree.

    Source:
        The log of the softmax; sums are taken in float32 or wider whatever the dtype of the logits.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.logprob import logprobs
        >>> logits, token = torch.tensor([[0.0, 0.0], [9.0, 9.0]]), torch.tensor([1, 0])
        >>> logprobs(logits, token, mask=torch.tensor([True, False]), temperature=1.0)
        tensor([-0.6931,  0.0000])
    """
    return _both(logits, token, mask, temperature, entropy=False)[0]


@validate(temperature=POSITIVE)
def logprobs_and_entropy(
    logits: Float[Tensor, "*rows V"], token: Int[Tensor, "*rows"], *, mask: Bool[Tensor, "*rows"], temperature: float
) -> tuple[Float[Tensor, "*rows"], Float[Tensor, "*rows"]]:
    r"""The log-prob of each token and the entropy of the distribution that it came from, in one pass.

    .. math:: H_t = -\sum_v \pi_{t, v} \log \pi_{t, v}

    Args:
        logits: one row of logits per position, of any floating dtype; the gradient is taken to these.
        token: the token whose log-prob is asked, at the position of the logits that predict it.
        mask: True where both are wanted; logits elsewhere are not read.
        temperature: what logits are divided by, above 0; the one that sampled the token.

    Returns:
        Log-probs and entropies, each in nats, in float32 or wider; exactly 0, with gradient 0, where
        ``mask`` is False.

    Raises:
        InputError: as for ``logprobs``.

    Source:
        The entropy is that of the distribution at ``temperature``, of which log-probs are; a logit of
        minus infinity counts 0.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.logprob import logprobs_and_entropy
        >>> logits, token = torch.zeros(1, 4), torch.tensor([3])
        >>> [x.item() for x in logprobs_and_entropy(logits, token, mask=torch.tensor([True]), temperature=0.5)]
        [-1.3862943649291992, 1.3862943649291992]
    """
    found = _both(logits, token, mask, temperature, entropy=True)
    return found[0], found[1]


def _both(logits: Tensor, token: Tensor, mask: Tensor, temperature: float, *, entropy: bool) -> tuple[Tensor, Tensor]:
    _require_tokens(logits, token, mask)
    token = token.long()
    if logits.numel() >= sizes.LOGITS and not traced(logits):
        flat = (logits.reshape(-1, logits.shape[-1]), token.reshape(-1), mask.reshape(-1))
        logprob, spread = (
            x.view(token.shape) for x in softmax.from_logits(*flat, temperature, entropy=entropy, formula=_formula)
        )
    else:
        logprob, spread = _formula(logits, token, mask, temperature)
    explain_result(logprob, where=mask, logprob=logprob)
    return logprob, spread


def _formula(logits: Tensor, token: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy by the log of the softmax."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    wanted = torch.where(mask.unsqueeze(-1), logits, 0.0).to(wide)
    every = torch.log_softmax(wanted / temperature, dim=-1)
    chosen = every.gather(-1, torch.where(mask, token, 0).unsqueeze(-1)).squeeze(-1)
    entropy = -(every.exp() * every.clamp(min=softmax.NOTHING)).sum(dim=-1)
    return torch.where(mask, chosen, 0.0), torch.where(mask, entropy, 0.0)


def _require_tokens(logits: Tensor, token: Tensor, mask: Tensor) -> None:
    if logits.shape[-1] == 0:
        raise InputError(f"logits have shape {list(logits.shape)}, expected [.., V]: a vocabulary of 1 token or more")
    label, size = token.long(), logits.shape[-1]
    refuse_where(
        mask & ((label < 0) | (label >= size)),
        lambda at: f"token{at} is {int(token[tuple(at)])}, expected a number from 0 to {size - 1}: a vocabulary place",
    )
