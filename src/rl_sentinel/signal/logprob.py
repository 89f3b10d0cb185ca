"""Log-probs and entropy of tokens, from logits or from hidden states and the head's weight."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where
from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.kernels import projection, sizes, softmax
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
        temperature: the divisor of the logits, above 0, as it was when the token was sampled.

    Returns:
        Log-probs in nats, in float32 or wider; exactly 0, with gradient 0, where ``mask`` is False.

    Raises:
        InputError: if ``temperature`` is not above 0, a wanted token lies outside the vocabulary, a wanted log-prob is
            not finite, or shapes disagree.

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
        temperature: the divisor of the logits, above 0, as it was when the token was sampled.

    Returns:
        Log-probs and entropies, each in nats, in float32 or wider; exactly 0, with gradient 0, where
        ``mask`` is False.

    Raises:
        InputError: as for ``logprobs``.

    Source:
        Log-probs and entropy belong to the distribution at ``temperature``; a logit of minus infinity adds 0
        to the entropy.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.logprob import logprobs_and_entropy
        >>> logits, token = torch.zeros(1, 4), torch.tensor([3])
        >>> [x.item() for x in logprobs_and_entropy(logits, token, mask=torch.tensor([True]), temperature=0.5)]
        [-1.3862943649291992, 1.3862943649291992]
    """
    return _both(logits, token, mask, temperature, entropy=True)


@validate(temperature=POSITIVE)
def logprobs_from_hidden(
    hidden: Float[Tensor, "*rows D"],
    weight: Float[Tensor, "V D"],
    token: Int[Tensor, "*rows"],
    *,
    mask: Bool[Tensor, "*rows"],
    temperature: float,
) -> Float[Tensor, "*rows"]:
    r"""The log-prob of each token under the logits :math:`x = W h`; many logits are computed in blocks.

    .. math:: \log \pi_t = \frac{x_{t, a_t}}{\tau} - \log \sum_v \exp \frac{x_{t, v}}{\tau}

    Args:
        hidden: the last hidden state per position, after the final norm; the gradient is taken to these.
        weight: the weight of the output projection, without a bias; the gradient is taken to it too.
        token: the token whose log-prob is asked, at the position of the hidden state that predicts it.
        mask: True where the log-prob is wanted; hidden states elsewhere are not read.
        temperature: the divisor of the logits, above 0, as it was when the token was sampled.

    Returns:
        Log-probs in nats, in float32 or wider; exactly 0, with gradient 0, where ``mask`` is False.

    Raises:
        InputError: if ``temperature`` is not above 0, a wanted token lies outside the vocabulary, a wanted log-prob is
            not finite, or shapes disagree.

    Source:
        Milakov and Gimelshein, arXiv 1805.02867, equation 7: the normalizer of the softmax in one pass, with a running
        maximum. Logits are computed in blocks of the vocabulary, and a second time for the gradient.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.logprob import logprobs_from_hidden
        >>> hidden, weight = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [1.0]])
        >>> mask = torch.tensor([True, False])
        >>> logprobs_from_hidden(hidden, weight, torch.tensor([1, 0]), mask=mask, temperature=1.0)
        tensor([-0.3133,  0.0000])
    """
    return _both_from_hidden(hidden, weight, token, mask, temperature, entropy=False)[0]


@validate(temperature=POSITIVE)
def logprobs_and_entropy_from_hidden(
    hidden: Float[Tensor, "*rows D"],
    weight: Float[Tensor, "V D"],
    token: Int[Tensor, "*rows"],
    *,
    mask: Bool[Tensor, "*rows"],
    temperature: float,
) -> tuple[Float[Tensor, "*rows"], Float[Tensor, "*rows"]]:
    r"""The log-prob of each token and the entropy of its distribution, in one pass over the vocabulary.

    .. math:: H_t = -\sum_v \pi_{t, v} \log \pi_{t, v}

    Args:
        hidden: as for ``logprobs_from_hidden``.
        weight: as for ``logprobs_from_hidden``.
        token: as for ``logprobs_from_hidden``.
        mask: True where both are wanted; hidden states elsewhere are not read.
        temperature: the divisor of the logits, above 0.

    Returns:
        Log-probs and entropies, each in nats, in float32 or wider; exactly 0, with gradient 0, where
        ``mask`` is False.

    Raises:
        InputError: as for ``logprobs_from_hidden``.

    Source:
        As for ``logprobs_from_hidden``; the entropy is that of the distribution at ``temperature``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.logprob import logprobs_and_entropy_from_hidden
        >>> one, weight, token = torch.ones(1, 2), torch.zeros(4, 2), torch.tensor([3])
        >>> both = logprobs_and_entropy_from_hidden(one, weight, token, mask=torch.tensor([True]), temperature=0.5)
        >>> [x.item() for x in both]
        [-1.3862943649291992, 1.3862943649291992]
    """
    return _both_from_hidden(hidden, weight, token, mask, temperature, entropy=True)


@validate(temperature=POSITIVE)
def squared_probabilities_from_hidden(
    hidden: Float[Tensor, "*rows D"], weight: Float[Tensor, "V D"], *, mask: Bool[Tensor, "*rows"], temperature: float
) -> Float[Tensor, "*rows"]:
    r"""The sum of squared probabilities at each position, :math:`\sum_v \pi_{t, v}^2`; without a gradient.

    Args:
        hidden: as for ``logprobs_from_hidden``.
        weight: as for ``logprobs_from_hidden``.
        mask: True where it is wanted; hidden states elsewhere are not read.
        temperature: the divisor of the logits, above 0.

    Returns:
        Numbers above 0 and up to 1, in float32 or wider; exactly 0 where ``mask`` is False.

    Raises:
        InputError: if ``temperature`` is not above 0, a wanted number is not finite, or shapes disagree.

    Source:
        The collision probability of the distribution, which the optimal token baseline reads; sums are taken with a
        running maximum, as in ``logprobs_from_hidden``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.logprob import squared_probabilities_from_hidden
        >>> mask = torch.tensor([True])
        >>> squared_probabilities_from_hidden(torch.ones(1, 2), torch.zeros(4, 2), mask=mask, temperature=1.0)
        tensor([0.2500])
    """
    _require_vocabulary(weight)
    wanted = mask.reshape(-1)
    rows = hidden.reshape(-1, hidden.shape[-1])[wanted]
    nothing = torch.zeros(len(rows), dtype=torch.long, device=hidden.device)
    found = projection.squares(projection.Columns(_as_autocast(rows), _as_autocast(weight), nothing, temperature))
    squares = _spread(found, wanted).view(mask.shape)
    explain_result(squares, where=mask, squares=squares)
    return squares


def _both(logits: Tensor, token: Tensor, mask: Tensor, temperature: float, *, entropy: bool) -> tuple[Tensor, Tensor]:
    """Log-probs and, with ``entropy``, entropies of checked arguments; a kernel computes them for many logits."""
    if logits.shape[-1] == 0:
        raise InputError(f"logits have shape {list(logits.shape)}, expected [.., V] with V of 1 or more")
    _require_tokens(logits.shape[-1], token, mask)
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
    """Log-probs and entropies from the log-softmax, in plain operations; the reference for the kernels."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    wanted = torch.where(mask.unsqueeze(-1), logits, 0.0).to(wide)
    every = torch.log_softmax(wanted / temperature, dim=-1)
    chosen = every.gather(-1, torch.where(mask, token, 0).unsqueeze(-1)).squeeze(-1)
    entropy = -(every.exp() * every.clamp(min=softmax.NOTHING)).sum(dim=-1)
    return torch.where(mask, chosen, 0.0), torch.where(mask, entropy, 0.0)


def _require_tokens(size: int, token: Tensor, mask: Tensor) -> None:
    """Require that each wanted token is in a vocabulary of ``size`` tokens.

    Raises:
        InputError: names the first token that is not.
    """
    label = token.long()
    refuse_where(
        mask & ((label < 0) | (label >= size)),
        lambda at: f"token{at} is {int(token[tuple(at)])}, expected 0 to {size - 1}: an index into the vocabulary",
    )


def _both_from_hidden(  # noqa: PLR0913 - the columns, a number, a choice
    hidden: Tensor, weight: Tensor, token: Tensor, mask: Tensor, temperature: float, *, entropy: bool
) -> tuple[Tensor, Tensor]:
    _require_vocabulary(weight)
    _require_tokens(len(weight), token, mask)
    hidden, weight = _as_autocast(hidden), _as_autocast(weight)
    if token.numel() * len(weight) < sizes.PROJECTED or traced(hidden, weight):
        logits = torch.where(mask.unsqueeze(-1), hidden, 0.0) @ weight.t()
        return _both(logits, token, mask, temperature, entropy=entropy)
    wanted, flat, token = mask.reshape(-1), hidden.reshape(-1, hidden.shape[-1]), token.reshape(-1).long()
    rows = (flat, token) if bool(wanted.all()) else (flat[wanted], token[wanted])
    columns = projection.Columns(rows[0], weight, rows[1], temperature)
    found = projection.from_hidden(columns, _formula, entropy=entropy)
    logprob, spread = (_spread(x, wanted).view(mask.shape) for x in found)
    explain_result(logprob, where=mask, logprob=logprob)
    return logprob, spread


def _as_autocast(x: Tensor) -> Tensor:
    """Convert to the dtype in which autocast multiplies; unchanged if autocast is off. Autocast skips float64."""
    kind = x.device.type
    enabled = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # the meta device has none
    return x.to(torch.get_autocast_dtype(kind)) if enabled and x.dtype != torch.float64 else x


def _spread(values: Tensor, wanted: Tensor) -> Tensor:
    """The values at the wanted rows, and 0 at all others."""
    if len(values) == len(wanted):
        return values
    return torch.zeros(len(wanted), dtype=values.dtype, device=values.device).masked_scatter(wanted, values)


def _require_vocabulary(weight: Tensor) -> None:
    if len(weight) == 0:
        raise InputError(f"weight has shape {list(weight.shape)}, expected [V, D] with V of 1 or more")
