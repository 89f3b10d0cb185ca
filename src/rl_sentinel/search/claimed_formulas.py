"""Expected outputs of a boundary, computed from the batch by the formula of the claimed algorithm."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import value_of
from rl_sentinel.formulas.advantage_normalization import SETTING, normalized
from rl_sentinel.formulas.algorithms import PLAIN
from rl_sentinel.formulas.corrections import SHARES
from rl_sentinel.formulas.kl_terms import STEERS
from rl_sentinel.formulas.kl_tokens import CONTROLLERS, KL, SHAPED, SHAPED_OUTCOMES
from rl_sentinel.formulas.path_quantities import COUNTS, LAID_OUT
from rl_sentinel.formulas.preference_losses import LOSSES as PREFERENCES
from rl_sentinel.formulas.preference_losses import preference_loss
from rl_sentinel.formulas.preference_metrics import REWARDS
from rl_sentinel.formulas.staleness import AGES
from rl_sentinel.formulas.token_metrics import TOKEN_METRICS
from rl_sentinel.formulas.token_values import PLACED, VALUES
from rl_sentinel.search.claimed_losses import (
    Formula,
    aggregated_losses,
    is_loss,
    kl_estimates,
    losses_of_tokens,
    modes_of,
    of_one_policy,
    with_claimed_gradient,
)
from rl_sentinel.search.comparison import places
from rl_sentinel.search.user_readings import Readings

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
_SEVERAL_READINGS: Mapping[str, Formula] = {**VALUES, **SHAPED}


def claimed(boundary: Boundary, name: str) -> str:
    """The algorithm that is claimed for an output, else the algorithm of the boundary; ``""`` without both."""
    return value_of(boundary.claims.output_algorithms.get(name) or boundary.claims.algorithm) or ""


def known_output(boundary: Boundary, name: str) -> bool:
    """Whether the tables have a formula for the output."""
    algorithm, output = claimed(boundary, name), boundary.outputs[name]
    if is_loss(boundary, name):
        if _of_pairs(boundary, algorithm):
            return True
        return bool(modes_of(boundary)) and losses_of_tokens(boundary, name, algorithm) is not None
    if algorithm in NUMBERS:
        return output.axes == "" and output.quantity != "requires_grad"
    if output.quantity == "kl_coefficient":
        return algorithm in CONTROLLERS and (value_of(boundary.claims.kl) or "") in KL
    per_token = output.axes == "B T" and (algorithm in KL or algorithm in SHAPED or algorithm in VALUES)
    return per_token or (output.axes in ("B", "B T") and algorithm in PLAIN)


def counted(boundary: Boundary, name: str, batch: Batch) -> Tensor:
    """A mask of the positions at which an output must equal its formula.

    These are trained tokens, or live rows for an output per row. For token rewards, they are whole responses.

    For a user's function, token rewards count at trained tokens only, because a reward per row has no other tokens.
    If the mask rearranges the values of an output, or the output is claimed to be 0 elsewhere, all positions count.
    """
    algorithm = claimed(boundary, name)
    if (algorithm in LAID_OUT and "mask" in boundary.reads) or (algorithm in PLAIN and boundary.claims.masked):
        return torch.ones_like(batch.mask if boundary.outputs[name].axes == "B T" else batch.live)
    whole = (algorithm in SHAPED and not boundary.own) or algorithm in PLACED
    return batch.valid if whole else places(boundary.outputs[name], batch, batch.live)


def references(boundary: Boundary, name: str, batch: Batch, settings: Settings, *, only: str = "") -> Readings:
    """The accepted values of one output, by reading, in float64; empty if they are not determined.

    A loss has gradients with respect to the columns in its formula.

    Args:
        boundary: the boundary.
        name: name of the output.
        batch: the batch.
        settings: the numbers of the formula; a setting may say that the advantages are normalized first.
        only: the name of the only reading that is needed: others may be missing; "" for all readings.

    Raises:
        KeyError: if the formula needs a number that the settings do not have.
    """
    normalization, algorithm = settings.get(SETTING), claimed(boundary, name)
    changed = normalized(batch, str(normalization)) if normalization else batch
    if changed is None:
        return {}
    batch = _as_read(boundary, changed)
    if algorithm in CONTROLLERS:
        return _coefficients(boundary, algorithm, batch, settings)
    if algorithm in _ONE_READING or algorithm in _SEVERAL_READINGS:
        return _tabled(boundary, algorithm, batch, settings)
    if _of_pairs(boundary, algorithm):
        return preference_loss(algorithm, batch, settings)
    losses = losses_of_tokens(boundary, name, algorithm)
    if losses is not None:
        return aggregated_losses(boundary, name, losses(batch, settings), batch, settings, only=only)
    return _kl_of_tokens(boundary, algorithm, batch) if algorithm in KL else {}


def _coefficients(boundary: Boundary, controller: str, batch: Batch, settings: Settings) -> Readings:
    """The KL coefficient after an update by a controller, by measure of the KL: the claimed measure, or all."""
    readings = CONTROLLERS[controller](value_of(boundary.claims.kl) or "", batch, settings)
    measure = value_of(boundary.claims.measure) or ""
    return {n: x for n, x in readings.items() if len(readings) == 1 or measure in n}


def _kl_of_tokens(boundary: Boundary, estimator: str, batch: Batch) -> Readings:
    """``[B, T]`` estimates of the KL; their gradient may be claimed to be that of another estimator."""
    return with_claimed_gradient(kl_estimates(estimator, boundary, batch), boundary, batch)


def _tabled(boundary: Boundary, algorithm: str, batch: Batch, settings: Settings) -> Readings:
    """The values of an algorithm that the tables compute from columns alone."""
    if algorithm in _ONE_READING:
        return {algorithm: _ONE_READING[algorithm](batch, settings)}
    if algorithm in SHAPED and boundary.own:
        batch = _without_unread_rewards(boundary, batch)
        return {**SHAPED[algorithm](batch, settings), **SHAPED_OUTCOMES[algorithm](batch, settings)}
    return _SEVERAL_READINGS[algorithm](batch, settings)


def _of_pairs(boundary: Boundary, algorithm: str) -> bool:
    """Whether the algorithm is a loss on pairs of rows, and the boundary claims which rows are a pair."""
    return algorithm in PREFERENCES and boundary.claims.pairing is not None


def _without_unread_rewards(boundary: Boundary, batch: Batch) -> Batch:
    """The batch with 0 in the rewards that the function does not read, because it may return the penalty alone."""
    unread = {"reward", "token_reward"} - boundary.reads
    return with_columns(batch, **{name: torch.zeros_like(getattr(batch, name)) for name in unread})


def _as_read(boundary: Boundary, batch: Batch) -> Batch:
    """The batch, in which log-probs that the boundary reads replace the log-probs that it does not read."""
    if "logprob" not in boundary.reads and "old_logprob" in boundary.reads:
        batch = with_columns(batch, logprob=batch.old_logprob)
    if "old_logprob" not in boundary.reads and "rollout_logprob" in boundary.reads:
        batch = with_columns(batch, old_logprob=batch.rollout_logprob)
    if of_one_policy(boundary):
        batch = with_columns(batch, old_logprob=batch.logprob.detach())
    return batch
