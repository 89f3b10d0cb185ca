"""Divergences between the distributions of a student and a teacher at each token, by their definitions."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings

#: Log-probability of a vocabulary entry that does not count: its exponential is tiny, but not 0 in float64.
_NO_SHARE = -500.0


def _log_shares(logits: Tensor, settings: Settings) -> Tensor:
    """Log-probabilities over the vocabulary at the temperature."""
    return (logits.double() / float(settings.get("temperature") or 1)).log_softmax(dim=2)


def _kl(one: Tensor, other: Tensor) -> Tensor:
    """KL(one || other) at each token; both distributions are log-probabilities."""
    return (one.exp() * (one - other)).sum(dim=2)


def _generalized_jsd(batch: Batch, settings: Settings) -> Tensor:
    """The divergence of GKD (arXiv 2306.13649), equation 1.

    The setting ``mixture`` is beta, the share of the teacher in the mixture.

    At ``mixture`` 0 and 1 the divergence is 0. There, the limit of the divergence divided by beta or by 1 - beta is
    used: KL(teacher || student) at 0, KL(student || teacher) at 1.
    """
    return _mixed(_log_shares(batch.logits, settings), _log_shares(batch.ref_logits, settings), settings)


def _mixed(student: Tensor, teacher: Tensor, settings: Settings) -> Tensor:
    beta = float(settings.get("mixture") or 0)
    if beta in (0.0, 1.0):
        return _kl(student, teacher) if beta else _kl(teacher, student)
    mixed = (beta * teacher.exp() + (1 - beta) * student.exp()).log()
    return beta * _kl(teacher, mixed) + (1 - beta) * _kl(student, mixed)


def _jsd_of_support(batch: Batch, settings: Settings) -> Tensor:
    """The generalized divergence over a few tokens: the ``likeliest`` ones of the teacher, and the sampled token.

    At ``mixture`` 0 only the tokens of the teacher count, at 1 only the sampled token, otherwise both. With ``tail``,
    all other tokens count as one token; without it, the probabilities of the few tokens are divided by their sum.
    """
    beta = float(settings.get("mixture") or 0)
    student, teacher = _log_shares(batch.logits, settings), _log_shares(batch.ref_logits, settings)
    support = torch.zeros_like(student, dtype=torch.bool)
    if beta < 1:
        support = support.scatter(2, teacher.topk(int(settings["likeliest"] or 1), dim=2).indices, value=True)
    if beta > 0:
        support = support.scatter(2, batch.token.unsqueeze(2), value=True)
    tail = bool(settings.get("tail"))
    return _mixed(_over_support(student, support, tail=tail), _over_support(teacher, support, tail=tail), settings)


def _over_support(log_shares: Tensor, support: Tensor, *, tail: bool) -> Tensor:
    """Log-probabilities over a support; other tokens have a probability of almost 0.

    With ``tail``, one more entry has the sum of the probabilities of the other tokens.
    """
    few = log_shares.masked_fill(~support, _NO_SHARE)
    if not tail:
        return few - few.logsumexp(dim=2, keepdim=True)
    rest = log_shares.masked_fill(support, _NO_SHARE).logsumexp(dim=2, keepdim=True)
    return torch.cat([few, rest], dim=2)


def _universal_distance(batch: Batch, settings: Settings) -> Tensor:
    """Universal logit distillation (arXiv 2402.12030): both distributions are sorted, then compared rank by rank.

    The teacher's distribution is multiplied by ``share``, the probability of the preceding part of the token.
    """
    student, teacher = (_log_shares(x, settings).exp().sort(2).values for x in (batch.logits, batch.ref_logits))
    return (student - float(settings.get("share") or 1) * teacher).abs().sum(dim=2)


#: Algorithm -> divergence of the student (``logits``) and the teacher (``ref_logits``) at each token, in nats; the
#: universal logit distance is a difference of probabilities.
DISTILLATIONS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "generalized jsd": _generalized_jsd,
    "generalized jsd of a support": _jsd_of_support,
    "universal logit distance": _universal_distance,
}
