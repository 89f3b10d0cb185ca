"""Compose the signal path in its fixed order: from raw rewards to the inputs of a loss and a critic."""

import inspect
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.signal import align, penalty
from rl_sentinel.signal.advantage.turn_level_gae import turn_values
from rl_sentinel.signal.choices import Choices, is_outcome
from rl_sentinel.signal.groups import group_sums
from rl_sentinel.signal.normalization import normalized
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import live_rows, row_counts, row_sums, selected
from rl_sentinel.signal.requirements import require_columns, require_finite, require_span
from rl_sentinel.signal.reward import clipped, rescaled, suppressed
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.signal.segments import Mask, Segments, narrowed, trained
from rl_sentinel.signal.steps import trajectories
from rl_sentinel.signal.validation import validate

#: Kinds of parameters that collect further arguments; nothing is passed for them.
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

#: Parameter of an estimator per token, or per response -> the optional column of the rollout that is passed for it.
_PER_TOKEN = {"logprob": "old_logprob", "pi_squared": "pi_squared", "value": "value", "turn": "turn"}
_PER_RESPONSE = {"reward_baseline": "reward_baseline", "reward_parts": "reward_parts"}


@validate()
def loss_ready(rollout: Rollout, *, by: Choices) -> Ready:
    r"""Compute advantages from raw rewards, with all stages in a fixed order.

    1. Rejection: rejected tokens are removed from the mask, before any statistic.
    2. Importance weights of the remaining tokens, against the policy that sampled them.
    3. The raw KL; the penalty is a separate tensor, and later stages do not change the KL.
    4. Rewards of trajectories: shifted, scaled, clipped; 0 where not scored; then normalized over scored ones.
    5. Advantages: an outcome estimator computes one per trajectory, for the tokens of all its steps; a temporal
       estimator computes one per token, and every trajectory must be one row.

    Args:
        rollout: the sampled responses.
        by: the choice at each stage.

    Returns:
        The inputs of a loss, without gradients, and 0 off the trained tokens. Labels, and a mask without rejections,
        are the tensors of the rollout; all others are new.

    Raises:
        InputError: if a choice needs a column that is None, a temporal estimator is given trajectories of
            several steps, or a stage refuses its input.

    Source:
        Each stage cites its own. In this order, a row that is not trained has no effect on other rows.

    Example:
        >>> from functools import partial
        >>> import torch
        >>> from rl_sentinel.signal.advantage import grpo
        >>> from rl_sentinel.signal.choices import Choices
        >>> from rl_sentinel.signal.path import loss_ready
        >>> from rl_sentinel.signal.rollout import Rollout
        >>> rollout = Rollout(
        ...     reward=torch.tensor([1.0, 0.0, 100.0]), group=torch.tensor([7, 7, 7]),
        ...     mask=torch.tensor([[True, True], [True, False], [False, False]]),
        ... )
        >>> ready = loss_ready(rollout, by=Choices(estimator=partial(grpo.advantages, standardize=False, epsilon=0.0)))
        >>> ready.advantage, ready.token_advantage()
        (tensor([ 0.5000, -0.5000,  0.0000]), tensor([[ 0.5000,  0.5000],
                [-0.5000,  0.0000],
                [ 0.0000,  0.0000]]))
    """
    mask = _after_rejection(rollout, by)
    weight = _weights(rollout, by, mask)
    raw_kl = None if by.kl is None else _result_of(by.kl, *_logprobs(rollout, "old_logprob", "ref_logprob"), mask=mask)
    paid, priced = _per_token(rollout, by, mask, raw_kl)
    if outcome := is_outcome(by.estimator):
        reward, advantage = _over_trajectories(rollout, by, mask, row_sums(paid, mask=mask))
    else:
        reward, advantage = _over_tokens(rollout, by, mask, paid)
    value = None if outcome else _value_per_step(rollout, by, mask)
    return Ready(
        mask=mask,
        live=live_rows(rollout.mask),
        kept=live_rows(mask),
        group=rollout.group,
        reward=reward.detach(),
        advantage=advantage,
        outcome=outcome,
        kl=None if by.kl is None else priced,
        weight=weight,
        returns=None if value is None else selected((advantage + value).detach(), mask=mask),
    )


def _after_rejection(rollout: Rollout, by: Choices) -> Mask:
    mask = rollout.mask
    for reject in by.rejections:
        keep = _result_of(reject, *_logprobs(rollout, "old_logprob", "rollout_logprob"), mask=rollout.mask)
        mask = narrowed(mask, keep, of_rows=_of_rows(reject, keep, rollout.mask))
    return mask


def _weights(rollout: Rollout, by: Choices, mask: Mask) -> Tensor | None:
    if by.weight is None:
        return None
    weight = _result_of(by.weight, *_logprobs(rollout, "old_logprob", "rollout_logprob"), mask=mask)
    per_row = _of_rows(by.weight, weight, mask)
    for bound in by.bounds:
        weight = _result_of(bound, weight, mask=live_rows(mask) if per_row else mask)
    wide = align.spread(weight, mask=mask) if per_row else weight
    require_columns(mask, weight=wide)
    why = "a bound is missing, or your function returned it"
    require_finite("weight", wide, where=mask, why=why)
    why = "it is the ratio of two probabilities, or computed from it"
    require_span("weight", wide, where=mask, span=(0.0, torch.inf), why=why)
    return selected(wide.detach(), mask=mask)


def _per_token(rollout: Rollout, by: Choices, mask: Mask, raw_kl: Tensor | None) -> penalty.Penalized:
    """Rewards per token minus the KL penalty, and the raw KL."""
    nothing = torch.zeros_like(trained(mask), dtype=rollout.reward.dtype)
    gained = nothing if rollout.token_reward is None else rollout.token_reward
    priced = nothing if raw_kl is None else raw_kl
    return penalty.in_reward(gained, priced, mask=mask, coefficient=by.kl_coefficient)


def _outcomes(reward: Tensor, *, group: Tensor, live: Tensor, scored: Tensor, by: Choices) -> Tensor:
    """Rescale, clip and normalize outcomes; unscored ones are excluded first."""
    counts = live & scored
    outcome = suppressed(reward, live=live, scored=scored)
    outcome = rescaled(outcome, live=counts, bias=by.bias, scale=by.scale)
    outcome = clipped(outcome, live=counts, least=by.least, most=by.most)
    return outcome if by.normalization is None else normalized(outcome, group=group, live=counts, by=by.normalization)


def _over_tokens(rollout: Rollout, by: Choices, mask: Mask, paid: Tensor) -> tuple[Tensor, Tensor]:
    """Place outcomes at each row's last trained token, and compute advantages per token."""
    if rollout.last is not None and not bool(rollout.last.all()):
        row = int(torch.nonzero(~rollout.last)[0])
        raise InputError(
            f"last[{row}] is False, expected True on every row for {_name(by.estimator)}: it assigns credit within a "
            "row, so earlier steps would get no credit; merge the steps, or use an outcome estimator"
        )
    reward = _outcomes(rollout.reward, group=rollout.group, live=live_rows(mask), scored=_scored(rollout), by=by)
    columns = {"mask": mask, "token_reward": paid + align.at_last(reward, mask=mask), "group": rollout.group}
    more = {name: getattr(rollout, column) for name, column in _PER_TOKEN.items()}
    columns |= {name: column for name, column in more.items() if column is not None}
    advantage = _estimate(by.estimator, columns, _PER_TOKEN)
    require_columns(mask, advantage=advantage)
    require_finite("advantage", advantage, where=mask, why=f"{_name(by.estimator)} returned it for a trained token")
    return reward, selected(advantage, mask=mask)


def _over_trajectories(rollout: Rollout, by: Choices, mask: Mask, paid: Tensor) -> tuple[Tensor, Tensor]:
    """Compute outcomes and advantages of trajectories, and repeat them at each of their live rows."""
    every_row = torch.arange(len(rollout.reward), device=rollout.reward.device)
    trajectory = every_row if rollout.trajectory is None else rollout.trajectory
    last = torch.ones_like(every_row, dtype=torch.bool) if rollout.last is None else rollout.last
    live = live_rows(mask)
    found = trajectories(group=rollout.group, live=live, trajectory=trajectory, last=last)
    rows, columns = found.last, {"group": rollout.group[found.last], "live": found.live}
    gained = group_sums(paid, group=trajectory, live=live)[rows]
    length = group_sums(row_counts(mask=mask).double(), group=trajectory, live=live)[rows].long()

    def compared(reward: Tensor) -> Tensor:
        return _outcomes(reward, **columns, scored=_scored(rollout)[rows], by=by)

    outcome = compared(rollout.reward[rows]) + torch.where(found.live, gained, torch.zeros_like(gained))
    given = {"reward": outcome, **columns, "length": length}
    if rollout.reward_baseline is not None:
        given["reward_baseline"] = rollout.reward_baseline[rows]
    if _weighs_parts(rollout, by):
        parts = cast("Tensor", rollout.reward_parts)[rows].unbind(dim=1)
        given["reward_parts"] = torch.stack([compared(part) for part in parts], dim=1)
    advantage = _estimate(by.estimator, given, _PER_RESPONSE)
    require_columns(found.live, "one number per response", advantage=advantage)
    why = f"{_name(by.estimator)} returned it for a trained response"
    require_finite("advantage", advantage, where=found.live, why=why)
    return found.repeated(outcome, live=live), found.repeated(advantage, live=live)


def _weighs_parts(rollout: Rollout, by: Choices) -> bool:
    """Whether the estimator takes parts of the outcome; rewards per token are then refused, as it would ignore them."""
    if rollout.reward_parts is None or "reward_parts" not in inspect.signature(by.estimator).parameters:
        return False
    if by.kl_coefficient or rollout.token_reward is not None:
        paid = (
            f"kl_coefficient is {by.kl_coefficient}, expected 0"
            if by.kl_coefficient
            else "token_reward is given, expected None"
        )
        fix = "put the KL into the loss" if by.kl_coefficient else "pass token rewards as a reward part"
        raise InputError(f"{paid} with {_name(by.estimator)}, which reads reward parts only: {fix}")
    return True


def _value_per_step(rollout: Rollout, by: Choices, mask: Mask) -> Tensor | None:
    """The critic's value of each token or, for an estimator of turns, of its turn; None without a critic."""
    if rollout.value is None or rollout.turn is None or "turn" not in inspect.signature(by.estimator).parameters:
        return rollout.value
    return turn_values(rollout.value, mask=mask, turn=rollout.turn)


def _scored(rollout: Rollout) -> Tensor:
    return torch.ones_like(rollout.reward, dtype=torch.bool) if rollout.scored is None else rollout.scored


def _logprobs(rollout: Rollout, *names: str) -> list[Tensor]:
    columns = {name: getattr(rollout, name) for name in names}
    for name, column in columns.items():
        if column is None:
            raise InputError(
                f"{name} is None, expected a log-prob per token, since a chosen function compares two policies: "
                "add the column to the rollout"
            )
    return list(columns.values())


def _estimate(
    estimator: Callable[..., Tensor], columns: Mapping[str, Tensor | Mask], optional: Mapping[str, str]
) -> Tensor:
    """Call a function with the columns that its parameters name, except parameters with a default other than None."""
    parameters = {n: p for n, p in inspect.signature(estimator).parameters.items() if p.kind not in _REST}
    names = [
        n for n, p in parameters.items() if p.default is inspect.Parameter.empty or (p.default is None and n in columns)
    ]
    missing = [name for name in names if name not in columns]
    if missing and missing[0] in optional:
        column = optional[missing[0]]
        raise InputError(f"{column} is None, expected a tensor with {_name(estimator)}: add the column to the rollout")
    if missing:
        known = ", ".join({**columns, **optional})
        raise InputError(
            f"{_name(estimator)} has the parameter {missing[0]}, expected only {known}: rename the parameter, or set "
            "it with functools.partial"
        )
    return _result_of(estimator, **{name: columns[name] for name in names}).detach()


def _result_of(function: Callable[..., Tensor], *columns: Tensor, **named: Tensor | Mask) -> Tensor:
    """Return the result of a chosen function; raise if it is not a tensor."""
    result = function(*columns, **named)
    if not isinstance(result, Tensor):
        raise InputError(f"{_name(function)} returned {shortened(result)}, expected a tensor: return one")
    return result


def _of_rows(function: Callable[..., Tensor], result: Tensor, mask: Mask) -> bool:
    """Whether a result is per row: by its axes if columns are padded, by the annotation of the function if packed.

    The shape of packed columns does not say: there may be as many tokens as rows.
    """
    if not isinstance(mask, Segments):
        return result.dim() == 1
    try:
        axes = getattr(inspect.signature(function, eval_str=True).return_annotation, "dim_str", "").split()
    except Exception:  # noqa: BLE001 - an annotation that is written for type checkers may fail when it is evaluated
        axes = []
    if axes not in (["B"], ["*S"], ["N"]):
        stated = f"axes {' '.join(axes)}" if axes else "no axes"
        raise InputError(
            f"return annotation of {_name(function)} has {stated}, expected Float[Tensor, ' B'] (a number per row) or "
            "Float[Tensor, '*S'] (a number per token), and Bool instead of Float for a decision: the shape of a packed "
            "result does not show whether it is per row or per token"
        )
    return axes == ["B"]


def _name(function: Callable[..., Tensor]) -> str:
    inner = getattr(function, "func", function)
    inner = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{inner.__module__.rpartition('.')[2]}.{inner.__qualname__}"
