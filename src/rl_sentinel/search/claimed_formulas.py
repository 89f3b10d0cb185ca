"""Expected outputs of a boundary: the formula of the algorithm that it claims, computed from the batch."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import value_of
from rl_sentinel.formulas.advantage_normalization import SETTING, normalized
from rl_sentinel.formulas.aggregation import BY_CONSTANT, MODES, aggregated
from rl_sentinel.formulas.algorithms import PLAIN
from rl_sentinel.formulas.allowed import kind
from rl_sentinel.formulas.corrections import SHARES
from rl_sentinel.formulas.distillation import DISTILLATIONS
from rl_sentinel.formulas.divergence_losses import DIVERGENCES
from rl_sentinel.formulas.kl_terms import KL_LOSSES, STEERS, importance_weighted
from rl_sentinel.formulas.kl_tokens import CONTROLLERS, KL, SHAPED, SHAPED_OUTCOMES
from rl_sentinel.formulas.path_quantities import COUNTS, LAID_OUT
from rl_sentinel.formulas.policy_losses import LOSSES
from rl_sentinel.formulas.preference_losses import LOSSES as PREFERENCES
from rl_sentinel.formulas.preference_losses import preference_loss
from rl_sentinel.formulas.preference_metrics import REWARDS
from rl_sentinel.formulas.self_play import SELF_PLAY
from rl_sentinel.formulas.staleness import AGES
from rl_sentinel.formulas.token_metrics import TOKEN_METRICS
from rl_sentinel.formulas.token_values import PLACED, VALUES
from rl_sentinel.formulas.value_losses import VALUE_LOSSES
from rl_sentinel.search.comparison import places
from rl_sentinel.search.user_readings import aggregated_column, plain_or_dual_clip, plain_or_truncated

Readings = dict[str, Tensor]  # name of a reading -> values: a formula may be read in several ways

#: Algorithm with one reading -> function that computes one number for the batch.
NUMBERS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    **SHARES,
    **STEERS,
    **COUNTS,
    **AGES,
    **REWARDS,
    **TOKEN_METRICS,
}

#: Algorithm with one reading -> function that computes its values.
_ONE_READING: Mapping[str, Callable[[Batch, Settings], Tensor]] = {**PLAIN, **NUMBERS}

#: Algorithm with several readings -> function that computes its values by reading.
_SEVERAL_READINGS: Mapping[str, Callable[[Batch, Settings], Readings]] = {**VALUES, **SHAPED}


def _with_one_reading(loss: Callable[[Batch, Settings], Tensor]) -> Callable[[Batch, Settings], Readings]:
    return lambda batch, settings: {"": loss(batch, settings)}


#: End of the name of a KL that is multiplied by the ratio of the policy to the old one.
WEIGHTED = "weighted by the ratio"

#: Usual means, of which a loss may take one for its policy term and the other for its KL.
MEANS = ("token-mean", "sequence-mean-token-mean")

#: Losses whose gradient at a ratio of 1 is that of REINFORCE.
RATIO_LOSSES = frozenset({"ppo", "dual clip", "cispo", "gspo", "importance sampling"})

#: Algorithm -> loss per token, by reading.
_OF_TOKENS: Mapping[str, Callable[[Batch, Settings], Readings]] = {
    **{name: _with_one_reading(loss) for name, loss in {**LOSSES, **DISTILLATIONS}.items()},
    **KL_LOSSES,
    **SELF_PLAY,
}


def claimed(boundary: Boundary, name: str) -> str:
    """The algorithm that an output claims; without its own claim, the boundary's algorithm."""
    return value_of(boundary.claims.output_algorithms.get(name) or boundary.claims.algorithm) or ""


def known_output(boundary: Boundary, name: str) -> bool:
    """Whether the tables have a formula for the output."""
    algorithm, output = claimed(boundary, name), boundary.outputs[name]
    if _is_loss(boundary, name):
        if _of_pairs(boundary, algorithm):
            return True
        return bool(_modes(boundary)) and (_tokens(boundary, name) is not None)
    if algorithm in NUMBERS:
        return output.axes == "" and output.quantity != "requires_grad"
    if output.quantity == "kl_coefficient":
        return algorithm in CONTROLLERS and (value_of(boundary.claims.kl) or "") in KL
    per_token = output.axes == "B T" and (algorithm in KL or algorithm in SHAPED or algorithm in VALUES)
    return per_token or (output.axes in ("B", "B T") and algorithm in PLAIN)


def _is_loss(boundary: Boundary, name: str) -> bool:
    """Whether an output is the loss, or one of its terms: ``loss.policy``, ``loss.entropy`` or ``loss.kl``."""
    return name == "loss" or kind(boundary.outputs[name].quantity) == "loss"


def counted(boundary: Boundary, name: str, batch: Batch) -> Tensor:
    """Where an output must equal its formula: at live rows and trained tokens; token rewards in the whole response.

    The rewards of a user's function count at trained tokens, because a reward per row has no other tokens.
    An output whose values the mask rearranges counts everywhere; so does an output that is claimed to be 0 elsewhere.
    """
    algorithm = claimed(boundary, name)
    if (algorithm in LAID_OUT and "mask" in boundary.reads) or (algorithm in PLAIN and boundary.claims.masked):
        return torch.ones_like(batch.mask if boundary.outputs[name].axes == "B T" else batch.live)
    whole = (algorithm in SHAPED and not boundary.own) or algorithm in PLACED
    return batch.valid if whole else places(boundary.outputs[name], batch, batch.live)


def references(boundary: Boundary, name: str, batch: Batch, settings: Settings) -> Readings:
    """The accepted values of one output, by reading, in float64; empty if the case does not determine them.

    A gradient flows to the columns that a loss is a function of.
    """
    normalization, algorithm = settings.get(SETTING), claimed(boundary, name)
    changed = normalized(batch, str(normalization)) if normalization else batch
    return {} if changed is None else _readings(boundary, name, algorithm, _as_read(boundary, changed), settings)


def _readings(boundary: Boundary, name: str, algorithm: str, batch: Batch, settings: Settings) -> Readings:
    """The accepted values of one output of this algorithm, with the columns that the formula reads."""
    if algorithm in CONTROLLERS:
        losses = CONTROLLERS[algorithm](value_of(boundary.claims.kl) or "", batch, settings)
        return {n: x for n, x in losses.items() if len(losses) == 1 or (value_of(boundary.claims.measure) or "") in n}
    if algorithm in _ONE_READING or algorithm in _SEVERAL_READINGS:
        return _tabled(boundary, algorithm, batch, settings)
    if _of_pairs(boundary, algorithm):
        return preference_loss(algorithm, batch, settings)
    make = _tokens(boundary, name)
    if algorithm in KL and make is None:
        gradient, values = value_of(boundary.claims.gradient) or "", _estimates(algorithm, boundary, batch)
        return _with_gradient_of(values, gradient if gradient != algorithm else "own", batch)
    rows = value_of(boundary.claims.rows) or ""
    losses = {}
    for reading, tokens in (make(batch, settings) if make else {}).items():
        for estimator, more in _regularized(boundary, name, batch, settings).items():
            for mode in _modes(boundary):
                reduced = aggregated(tokens + more, batch, mode, settings, rows)
                prefix = ", ".join(filter(None, (reading, estimator, mode if len(_modes(boundary)) > 1 else "")))
                losses |= {f"{prefix}, {n}" if prefix else n: x for n, x in reduced.items()}
            if boundary.own and set(MEANS) <= set(_modes(boundary)) and isinstance(more, Tensor):
                losses |= _apart(reading, tokens, estimator, more, batch)
    factor = value_of(boundary.claims.factor)
    return {n: x for n, x in losses.items() if not factor or n.startswith(factor)}


def _tabled(boundary: Boundary, algorithm: str, batch: Batch, settings: Settings) -> Readings:
    """The values of an algorithm that the tables compute from columns alone."""
    if algorithm in _ONE_READING:
        return {algorithm: _ONE_READING[algorithm](batch, settings)}
    if algorithm in SHAPED and boundary.own:
        batch = _without_unread_rewards(boundary, batch)
        return {**SHAPED[algorithm](batch, settings), **SHAPED_OUTCOMES[algorithm](batch, settings)}
    return _SEVERAL_READINGS[algorithm](batch, settings)


def _apart(reading: str, tokens: Tensor, estimator: str, more: Tensor, batch: Batch) -> Readings:
    """The sum of two aggregations: the policy's loss by one mode, its KL and entropy terms by the other."""
    return {
        ", ".join(filter(None, (reading, estimator, f"{one}, {n}", f"other terms {other}, {m}"))): x + y
        for one, other in (MEANS, MEANS[::-1])
        for n, x in aggregated(tokens, batch, one, {}).items()
        for m, y in aggregated(more, batch, other, {}).items()
    }


def _modes(boundary: Boundary) -> tuple[str, ...]:
    """The accepted aggregations: all of them if the claim does not specify one, none without a claim."""
    claimed_mode = value_of(boundary.claims.aggregation) or ""
    several = {"any": tuple(MODES), "token-sum-by-constant": BY_CONSTANT}
    return several.get(claimed_mode, (claimed_mode,) if claimed_mode in MODES else ())


def _of_pairs(boundary: Boundary, algorithm: str) -> bool:
    """Whether the algorithm is a loss on pairs of rows, and the boundary says which rows are a pair."""
    return algorithm in PREFERENCES and boundary.claims.pairing is not None


def _tokens(boundary: Boundary, name: str) -> Callable[[Batch, Settings], Readings] | None:
    """Losses (or one term of the loss) per token, by reading."""
    if not _is_loss(boundary, name):
        return None
    quantity, estimator = boundary.outputs[name].quantity, value_of(boundary.claims.kl) or ""
    if quantity == "loss.entropy":
        return lambda batch, _settings: {"": batch.entropy.double()}
    if quantity == "loss.kl":
        return (lambda batch, _settings: _estimates(estimator, boundary, batch)) if estimator in KL else None
    return _losses(boundary, claimed(boundary, name))


def _losses(boundary: Boundary, algorithm: str) -> Callable[[Batch, Settings], Readings] | None:
    """The losses of an algorithm per token, by reading."""
    if boundary.stage == "aggregate" and algorithm not in DISTILLATIONS:
        return aggregated_column(boundary, algorithm)
    if algorithm in VALUE_LOSSES:
        return VALUE_LOSSES[algorithm]
    if algorithm in _OF_TOKENS:
        losses = _OF_TOKENS[algorithm]
        if algorithm == "ppo" and boundary.own and not of_one_policy(boundary):
            losses = plain_or_dual_clip
        if algorithm == "importance sampling" and boundary.own:
            losses = plain_or_truncated
        if of_one_policy(boundary) and algorithm in RATIO_LOSSES:
            losses = _of_one_policy(losses)
        return lambda batch, settings: _weighted(losses(batch, settings), boundary, batch)
    if algorithm in DIVERGENCES:
        return lambda batch, settings: _weighted(_one_or_none(DIVERGENCES[algorithm](batch, settings)), boundary, batch)
    return None


def of_one_policy(boundary: Boundary) -> bool:
    """Whether a policy loss reads no log-probs of an older policy, so that its ratio is 1."""
    older = boundary.reads & {"old_logprob", "rollout_logprob"}
    return boundary.stage == "policy-loss" and "logprob" in boundary.reads and not older


def _of_one_policy(losses: Callable[[Batch, Settings], Readings]) -> Callable[[Batch, Settings], Readings]:
    """The losses at a ratio of 1, and the loss with the same gradient that multiplies by the log-prob."""
    return lambda batch, settings: {
        **{f"{n}, by a ratio of 1" if n else "by a ratio of 1": x for n, x in losses(batch, settings).items()},
        "by the log-prob": LOSSES["reinforce"](batch, settings),
    }


def _with_gradient_of(values: Readings, gradient: str, batch: Batch) -> Readings:
    """The values, with the gradient of the estimator that is claimed for the gradient."""
    if gradient not in KL:
        return values
    slope = next(iter(KL[gradient](batch).values()))
    return {n: slope - slope.detach() + x.detach() for n, x in values.items()}


def _one_or_none(tokens: Tensor | None) -> Readings:
    return {} if tokens is None else {"": tokens}


def _weighted(losses: Readings, boundary: Boundary, batch: Batch) -> Readings:
    """Multiply by the importance weight relative to the sampler, truncated as the boundary claims.

    The weight is each token's ratio, or the geometric mean of a row's ratios at all of its tokens.
    """
    ceiling = value_of(boundary.claims.corrected_at_most)
    if not ceiling:
        return losses
    trained = batch.logprob if "old_logprob" not in boundary.reads else batch.old_logprob
    ratio = torch.exp(trained.detach().double() - batch.rollout_logprob.double())
    weight = torch.where(ratio > ceiling, ceiling, ratio)
    if value_of(boundary.claims.corrected_by) == "row":
        for b in range(batch.rows):
            tokens = batch.mask[b]
            weight[b] = weight[b][tokens].log().mean().exp() if bool(tokens.any()) else 1.0
    return {n: x * weight for n, x in losses.items()}


def _regularized(boundary: Boundary, name: str, batch: Batch, settings: Settings) -> Mapping[str, Tensor | float]:
    """The entropy and KL terms of each token's loss, for each reading of the KL; none for a logged term of the loss."""
    fixed: Tensor | float = 0.0
    if boundary.outputs[name].quantity.startswith("loss."):
        return {"": fixed}
    if "entropy" in boundary.reads and settings.get("entropy_coeff"):
        fixed = fixed - float(settings["entropy_coeff"] or 0) * batch.entropy.double()
    if "ref_logprob" not in boundary.reads or not settings.get("kl_loss_coef"):
        return {"": fixed}
    claimed_kl = value_of(boundary.claims.kl)
    estimators = (claimed_kl,) if claimed_kl else tuple(KL)
    readings = {n: x for name in estimators for n, x in _estimates(name, boundary, batch).items()}
    weight = float(settings["kl_loss_coef"] or 0)
    return {n if len(readings) > 1 else "": fixed + weight * kl for n, kl in readings.items()}


def _estimates(estimator: str, boundary: Boundary, batch: Batch) -> Readings:
    """A KL per token, by reading.

    A user's function may weight it by the ratio to the old policy, so that its gradient is unbiased. At a ratio of 1,
    only the gradient shows this weight, so there it must be claimed.
    """
    values = KL[estimator](batch)
    stated = value_of(boundary.claims.output_definitions.get("loss")) == WEIGHTED
    if not boundary.own or not (stated or boundary.reads & {"old_logprob", "rollout_logprob"}):
        return values
    return values | {f"{n} {WEIGHTED}": importance_weighted(x, batch) for n, x in values.items()}


def _without_unread_rewards(boundary: Boundary, batch: Batch) -> Batch:
    """The batch with rewards of 0 if the function reads no reward, because it may return the penalty alone."""
    unread = {"reward", "token_reward"} - boundary.reads
    return with_columns(batch, **{name: torch.zeros_like(getattr(batch, name)) for name in unread})


def _as_read(boundary: Boundary, batch: Batch) -> Batch:
    """The batch, with log-probs that the boundary does not read replaced by those that it reads instead."""
    if "logprob" not in boundary.reads and "old_logprob" in boundary.reads:
        batch = with_columns(batch, logprob=batch.old_logprob)
    if "old_logprob" not in boundary.reads and "rollout_logprob" in boundary.reads:
        batch = with_columns(batch, old_logprob=batch.rollout_logprob)
    if of_one_policy(boundary):
        batch = with_columns(batch, old_logprob=batch.logprob.detach())
    return batch
