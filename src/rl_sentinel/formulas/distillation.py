"""Divergences between the distributions of a student and a teacher at each token, by their definitions."""

from collections.abc import Callable, Mapping

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings


def _log_shares(logits: Tensor, settings: Settings) -> Tensor:
    """Log-probabilities of the words at the temperature."""
    return (logits.double() / float(settings.get("temperature") or 1)).log_softmax(dim=2)


def _kl(one: Tensor, other: Tensor) -> Tensor:
    """KL of the first distribution against the other, both as log-probabilities, at each token."""
    return (one.exp() * (one - other)).sum(dim=2)


def _generalised_jsd(batch: Batch, settings: Settings) -> Tensor:
    """GKD (arXiv 2306.13649), equation 1, with ``mixture`` for its beta, the share of the teacher in the mixture.

    At ``mixture`` 0 and 1 it is 0, so its limit divided by beta and 1 - beta is used: the KL of the teacher against the
    student, and of the student against the teacher.
    """
    beta = float(settings.get("mixture") or 0)
    student, teacher = _log_shares(batch.logits, settings), _log_shares(batch.ref_logits, settings)
    if beta in (0.0, 1.0):
        return _kl(student, teacher) if beta else _kl(teacher, student)
    mixed = (beta * teacher.exp() + (1 - beta) * student.exp()).log()
    return beta * _kl(teacher, mixed) + (1 - beta) * _kl(student, mixed)


def _universal_distance(batch: Batch, settings: Settings) -> Tensor:
    """Universal logit distillation (arXiv 2402.12030): the largest shares are compared with the largest.

    The teacher's distribution is weighted by the probability of the preceding part of the token (``share``).
    """
    student, teacher = (_log_shares(x, settings).exp().sort(2).values for x in (batch.logits, batch.ref_logits))
    return (student - float(settings.get("share") or 1) * teacher).abs().sum(dim=2)


#: Algorithm -> divergence of the student (``logits``) and the teacher (``ref_logits``) at each token, in nats.
DISTILLATIONS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "generalised jsd": _generalised_jsd,
    "universal logit distance": _universal_distance,
}
