"""Log-probs and entropy of tokens from logits, in blocks: no second ``[.., V]`` tensor in the forward pass."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.checks import answered, kinds, within
from rl_sentinel.signal.ratios import traced

#: Logits that one block covers on a CPU, where it should fit the cache, and on other devices.
BLOCK_CPU, BLOCK_DEVICE = 2**18, 2**27

#: A log-prob in nats, whose probability is 0 in float64 too; it stands for minus infinity, so that 0 times it is 0.
NOTHING = -1000.0


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
    _check(logits, token, mask, temperature)
    token = token.long()
    flat = (logits.reshape(-1, logits.shape[-1]), token.reshape(-1), mask.reshape(-1))
    if traced(logits):
        logprob, spread = _plain(*flat, temperature)
    else:
        logprob, spread = _FromLogits.apply(*flat, temperature, entropy)  # type: ignore[no-untyped-call]  # torch has no types here
    found = answered(logprob.view(token.shape), mask=mask, logprob=logprob.view(token.shape))
    return found, spread.view(token.shape)


def _check(logits: Tensor, token: Tensor, mask: Tensor, temperature: float) -> None:
    kinds(logits=logits, token=token, mask=mask)
    if logits.shape[:-1] != token.shape or token.shape != mask.shape:
        raise InputError(
            f"logits, token, mask have the shapes {tuple(logits.shape)}, {tuple(token.shape)}, {tuple(mask.shape)}, "
            "expected [.., V], [..], [..]"
        )
    if logits.shape[-1] == 0:
        raise InputError(f"logits have shape {list(logits.shape)}, expected [.., V]: a vocabulary of 1 token or more")
    within("temperature", temperature, least=0.0, open_below=True)
    token = token.long()
    wrong = mask & ((token < 0) | (token >= logits.shape[-1]))
    if bool(wrong.any()):
        where = tuple(int(i) for i in torch.nonzero(wrong)[0])
        got = f"token{list(where)} is {int(token[where])}"
        raise InputError(f"{got}, expected a number from 0 to {logits.shape[-1] - 1}: a place in the vocabulary")


def _plain(logits: Tensor, token: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Both in one piece by plain operations, which second derivatives and those of ``torch.func`` can follow."""
    wanted = torch.where(mask.unsqueeze(1), logits, 0.0)
    own = torch.log_softmax(_scaled(wanted, slice(None), temperature), dim=1)
    chosen = own.gather(1, torch.where(mask, token, 0).unsqueeze(1)).squeeze(1)
    spread = -(own.exp() * own.clamp(min=NOTHING)).sum(dim=1)
    return torch.where(mask, chosen, 0.0), torch.where(mask, spread, 0.0)


class _FromLogits(torch.autograd.Function):
    """Blocks of rows; what the backward pass needs besides the logits is two numbers per row."""

    @staticmethod
    def forward(  # noqa: PLR0913 - the flat columns and two choices
        ctx: Any,  # noqa: ANN401 - torch's context has no type
        logits: Tensor,
        token: Tensor,
        mask: Tensor,
        temperature: float,
        entropy: bool,  # noqa: FBT001 - autograd passes by position
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(logits.dtype, torch.float32)
        logprob, spread, total = (torch.zeros(len(token), dtype=wide, device=logits.device) for _ in range(3))
        for rows in _blocks(logits, mask):
            scaled = _scaled(logits, rows, temperature)
            whole = torch.logsumexp(scaled, dim=1)
            total[rows] = whole
            logprob[rows] = scaled.gather(1, token[rows].unsqueeze(1)).squeeze(1) - whole
            if entropy:
                spread[rows] = _entropy(scaled.sub_(whole.unsqueeze(1)))
        ctx.save_for_backward(logits, token, mask, total, spread)
        ctx.temperature = temperature
        return logprob, spread

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401 - as above
        logits, token, mask, total, spread = ctx.saved_tensors
        if torch.is_grad_enabled():  # this is to be followed once more
            both = _plain(logits, token, mask, ctx.temperature)
            return torch.autograd.grad(both, logits, grads, create_graph=True)[0], None, None, None, None
        of_logprob, of_entropy = (g / ctx.temperature for g in grads)
        flat, found = bool((of_entropy == 0).all()), torch.zeros_like(logits)
        for rows in _blocks(logits, mask):
            own = _scaled(logits, rows, ctx.temperature).sub_(total[rows].unsqueeze(1))
            share, chosen = own.exp(), of_logprob[rows].unsqueeze(1)
            if flat:
                share.mul_(-chosen)
            else:
                bend = own.clamp_(min=NOTHING).add_(spread[rows].unsqueeze(1)).mul_(of_entropy[rows].unsqueeze(1))
                share.mul_(bend.add_(chosen).neg_())
            found[rows] = share.scatter_add_(1, token[rows].unsqueeze(1), chosen).to(found.dtype)
        return found, None, None, None, None


def _entropy(own: Tensor) -> Tensor:
    """Entropy of each row from its log-probs, which are overwritten; minus infinity counts 0."""
    return -own.exp().mul_(own.clamp_(min=NOTHING)).sum(dim=1)


def _scaled(logits: Tensor, rows: slice | Tensor, temperature: float) -> Tensor:
    """One block of logits by the temperature, in float32 or wider, in memory of its own."""
    return torch.div(logits[rows].to(torch.promote_types(logits.dtype, torch.float32)), temperature)


def _blocks(logits: Tensor, mask: Tensor) -> Iterator[slice | Tensor]:
    """The wanted rows, some at a time: as slices where all are wanted."""
    size = max(1, (BLOCK_CPU if logits.device.type == "cpu" else BLOCK_DEVICE) // logits.shape[1])
    if bool(mask.all()):
        yield from (slice(start, start + size) for start in range(0, len(mask), size))
    else:
        yield from torch.split(torch.nonzero(mask).squeeze(1), size)
