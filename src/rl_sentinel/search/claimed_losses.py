"""Expected losses of a boundary: the loss per token of the algorithm that it claims, its KL, and its aggregation."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings, number_of
from rl_sentinel.core.claims import value_of
from rl_sentinel.formulas.aggregation import BY_CONSTANT, MODES, aggregated
from rl_sentinel.formulas.allowed import kind
from rl_sentinel.formulas.distillation import DISTILLATIONS
from rl_sentinel.formulas.divergence_losses import DIVERGENCES
from rl_sentinel.formulas.kl_terms import KL_LOSSES, importance_weighted
from rl_sentinel.formulas.kl_tokens import KL
from rl_sentinel.formulas.policy_losses import LOSSES
from rl_sentinel.formulas.self_play import SELF_PLAY
from rl_sentinel.formulas.value_losses import VALUE_LOSSES
from rl_sentinel.search.user_readings import Readings, aggregated_column, plain_or_dual_clip, plain_or_truncated

#: Function of a batch and settings -> values by reading.
Formula = Callable[[Batch, Settings], Readings]


def _with_one_reading(loss: Callable[[Batch, Settings], Tensor | None]) -> Formula:
    """A formula with one reading; it has no reading for a batch on which the loss is not determined."""

    def losses(batch: Batch, settings: Settings) -> Readings:
        tokens = loss(batch, settings)
        return {} if tokens is None else {"": tokens}

    return losses


#: End of the name of a KL that is multiplied by the ratio of the policy to the old one.
WEIGHTED = "weighted by the ratio"

#: Part of the name of a reading; the aggregation of the KL and entropy terms follows it.
_OTHER_TERMS = "other terms"

#: Usual means, of which a loss may take one for its policy term and the other for its KL.
_MEANS = ("token-mean", "sequence-mean-token-mean")

#: Losses whose gradient at a ratio of 1 is that of REINFORCE.
_RATIO_LOSSES = frozenset({"ppo", "dual clip", "cispo", "gspo", "importance sampling"})

#: Algorithm -> loss per token, by reading.
_OF_TOKENS: Mapping[str, Formula] = {
    **{name: _with_one_reading(loss) for name, loss in {**LOSSES, **DISTILLATIONS, **DIVERGENCES}.items()},
    **KL_LOSSES,
    **SELF_PLAY,
}


def is_loss(boundary: Boundary, name: str) -> bool:
    """Whether an output is the loss, or one of its terms: ``loss.policy``, ``loss.entropy`` or ``loss.kl``."""
    return name == "loss" or kind(boundary.outputs[name].quantity) == "loss"


def of_one_policy(boundary: Boundary) -> bool:
    """Whether the boundary is a policy loss that reads no log-probs of an older policy, so that the ratio is 1."""
    older = boundary.reads & {"old_logprob", "rollout_logprob"}
    return boundary.stage == "policy-loss" and "logprob" in boundary.reads and not older


def modes_of(boundary: Boundary) -> tuple[str, ...]:
    """The accepted aggregations: several if the claim leaves a choice; empty without a claim."""
    claimed_mode = value_of(boundary.claims.aggregation) or ""
    several = {"any": tuple(MODES), "token-sum-by-constant": BY_CONSTANT}
    return several.get(claimed_mode, (claimed_mode,) if claimed_mode in MODES else ())


def losses_of_tokens(boundary: Boundary, name: str, algorithm: str) -> Formula | None:
    """The formula of the loss per token, or of one term of this loss; None if there is no formula.

    Args:
        boundary: the boundary.
        name: name of the output.
        algorithm: the algorithm that the output claims.
    """
    if not is_loss(boundary, name):
        return None
    quantity, estimator = boundary.outputs[name].quantity, value_of(boundary.claims.kl) or ""
    if quantity == "loss.entropy":
        return lambda batch, _settings: {"": batch.entropy.double()}
    if quantity == "loss.kl":
        return (lambda batch, _settings: kl_estimates(estimator, boundary, batch)) if estimator in KL else None
    if boundary.stage == "aggregate" and algorithm not in DISTILLATIONS:
        return aggregated_column(boundary, algorithm)
    if algorithm in VALUE_LOSSES:
        return VALUE_LOSSES[algorithm]
    return _policy_losses(boundary, algorithm) if algorithm in _OF_TOKENS else None


def _policy_losses(boundary: Boundary, algorithm: str) -> Formula:
    """The formula for an algorithm's loss per token.

    The boundary decides which readings are allowed, and whether the loss has an importance weight.
    """
    losses = _OF_TOKENS[algorithm]
    if algorithm == "ppo" and boundary.own and not of_one_policy(boundary):
        losses = plain_or_dual_clip
    if algorithm == "importance sampling" and boundary.own:
        losses = plain_or_truncated
    if algorithm in _RATIO_LOSSES and of_one_policy(boundary):
        losses = _of_one_policy(losses)
    return lambda batch, settings: _weighted(losses(batch, settings), boundary, batch)


def _of_one_policy(losses: Formula) -> Formula:
    """A formula with the losses at a ratio of 1, and the loss of REINFORCE, which has the same gradient."""
    return lambda batch, settings: {
        **{_joined(n, "by a ratio of 1"): x for n, x in losses(batch, settings).items()},
        "by the log-prob": LOSSES["reinforce"](batch, settings),
    }


def _weighted(losses: Readings, boundary: Boundary, batch: Batch) -> Readings:
    """Multiply by the importance weight relative to the sampler, if the boundary claims a ceiling for it.

    The weight is each token's ratio, clamped to the ceiling, or, as claimed, the geometric mean of the clamped ratios
    at a row's trained tokens.
    """
    ceiling = value_of(boundary.claims.corrected_at_most)
    if not ceiling:
        return losses
    trained = batch.old_logprob if "old_logprob" in boundary.reads else batch.logprob
    ratio = torch.exp(trained.detach().double() - batch.rollout_logprob.double())
    weight = torch.where(ratio > ceiling, ceiling, ratio)
    if value_of(boundary.claims.corrected_by) == "row":
        for b in range(batch.rows):
            tokens = batch.mask[b]
            weight[b] = weight[b][tokens].log().mean().exp() if bool(tokens.any()) else 1.0
    return {n: x * weight for n, x in losses.items()}


def aggregated_losses(  # noqa: PLR0913 - the output, and what its formula reads
    boundary: Boundary, name: str, losses: Readings, batch: Batch, settings: Settings, *, only: str = ""
) -> Readings:
    """The loss as one number, for each reading of the loss per token, of the KL and of the aggregation.

    Args:
        boundary: the boundary.
        name: name of the output.
        losses: ``[B, T]`` losses per token, by reading.
        batch: the batch.
        settings: the numbers of the formula.
        only: the name of the only reading that is needed: others may be missing; "" for all readings.
    """
    modes, rows = modes_of(boundary), value_of(boundary.claims.rows) or ""
    separate = boundary.own and set(_MEANS) <= set(modes)
    readings = Readings()
    for reading, tokens in losses.items():
        for estimator, terms in _regularization(boundary, name, batch, settings).items():
            for mode in modes:
                named = _joined(reading, estimator, mode if len(modes) > 1 else "")
                if only and not only.startswith(named):
                    continue
                for n, x in aggregated(tokens + terms, batch, mode, settings, rows).items():
                    readings[_joined(named, n)] = x
            if separate and (not only or _OTHER_TERMS in only) and isinstance(terms, Tensor):
                readings |= _separately(_joined(reading, estimator), tokens, terms, batch)
    factor = value_of(boundary.claims.factor)
    return {n: x for n, x in readings.items() if not factor or n.startswith(factor)}


def _regularization(boundary: Boundary, name: str, batch: Batch, settings: Settings) -> Mapping[str, Tensor | float]:
    """The entropy and KL terms of each token's loss, by reading of the KL; 0 for a logged term of the loss."""
    terms: Tensor | float = 0.0
    if boundary.outputs[name].quantity.startswith("loss."):
        return {"": terms}
    if "entropy" in boundary.reads and settings.get("entropy_coeff"):
        terms = terms - number_of(settings, "entropy_coeff") * batch.entropy.double()
    if "ref_logprob" not in boundary.reads or not settings.get("kl_loss_coef"):
        return {"": terms}
    claimed_kl, weight = value_of(boundary.claims.kl), number_of(settings, "kl_loss_coef")
    readings = Readings()
    for estimator in (claimed_kl,) if claimed_kl else tuple(KL):
        readings |= with_claimed_gradient(kl_estimates(estimator, boundary, batch), boundary, batch)
    return {n if len(readings) > 1 else "": terms + weight * kl for n, kl in readings.items()}


def kl_estimates(estimator: str, boundary: Boundary, batch: Batch) -> Readings:
    """``[B, T]`` estimates of the KL, in nats, by reading.

    A user's function may weight the KL by the ratio to the old policy, so that the gradient is unbiased. At a ratio of
    1, only the gradient shows this weight, so the weight must then be claimed.
    """
    values = KL[estimator](batch)
    stated = value_of(boundary.claims.output_definitions.get("loss")) == WEIGHTED
    if not boundary.own or not (stated or boundary.reads & {"old_logprob", "rollout_logprob"}):
        return values
    return values | {f"{n} {WEIGHTED}": importance_weighted(x, batch) for n, x in values.items()}


def with_claimed_gradient(values: Readings, boundary: Boundary, batch: Batch) -> Readings:
    """The values of a KL, with the gradient of the estimator that is claimed for the gradient, if one is claimed."""
    gradient = value_of(boundary.claims.gradient) or ""
    if gradient not in KL or gradient in values:
        return values
    slope = next(iter(KL[gradient](batch).values()))
    return {n: slope - slope.detach() + x.detach() for n, x in values.items()}


def _separately(reading: str, tokens: Tensor, terms: Tensor, batch: Batch) -> Readings:
    """The sum of two aggregations: one mode for the loss of the policy, another for the KL and entropy terms."""
    readings = Readings()
    for mode, mode_of_terms in (_MEANS, _MEANS[::-1]):
        for n, loss in aggregated(tokens, batch, mode, {}).items():
            for m, term in aggregated(terms, batch, mode_of_terms, {}).items():
                readings[_joined(reading, f"{mode}, {n}", f"{_OTHER_TERMS} {mode_of_terms}, {m}")] = loss + term
    return readings


def _joined(*names: str) -> str:
    """The name of a reading, joined from the names of its parts."""
    return ", ".join(name for name in names if name)
