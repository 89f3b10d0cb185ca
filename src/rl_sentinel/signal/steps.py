"""Trajectories of several steps: one advantage per trajectory, shared by its steps."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where, takes
from rl_sentinel.signal.requirements import require_columns
from rl_sentinel.signal.validation import validate


@validate()
def last_steps(*, trajectory: Int[Tensor, " B"], last: Bool[Tensor, " B"]) -> Int[Tensor, " K"]:
    """The row of each trajectory's last step, in the order of trajectory ids.

    Args:
        trajectory: trajectory id per step; any integers, rows in any order.
        last: True on the last step of each trajectory.

    Returns:
        One row number per trajectory.

    Raises:
        InputError: if a dtype or shape is wrong, or a trajectory has no last step, or more than one.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.steps import last_steps
        >>> last_steps(trajectory=torch.tensor([4, 4, 2]), last=torch.tensor([False, True, True]))
        tensor([2, 1])
    """
    ids, place = torch.unique(trajectory.long(), return_inverse=True)
    count = torch.zeros_like(ids).index_add(0, place, last.to(ids.dtype))
    refuse_where(
        count != 1,
        lambda at: (
            f"trajectory {int(ids[at[0]])} has {int(count[at[0]])} last steps, expected 1: "
            "set last to True at its final step, and only there"
        ),
    )
    rows = torch.arange(len(place), device=place.device)
    return torch.zeros_like(ids).scatter_add(0, place, torch.where(last, rows, 0))


class Trajectories(NamedTuple):
    """Trajectories in the order of their ids.

    ``last`` is the row of each trajectory's last step, ``live`` is True if one of its steps counts, and ``place`` is
    the index of each row's trajectory.
    """

    last: Int[Tensor, " K"]
    live: Bool[Tensor, " K"]
    place: Int[Tensor, " B"]

    def repeated(self, values: Float[Tensor, " K"], *, live: Bool[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Repeat one number per trajectory at each of its live rows; 0 at the others."""
        result = values[self.place]
        return torch.where(live, result, torch.zeros_like(result))


@validate()
def trajectories(
    *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"], trajectory: Int[Tensor, " B"], last: Bool[Tensor, " B"]
) -> Trajectories:
    """Find the trajectories of rows.

    Args:
        group: prompt id per step; one per trajectory.
        live: True for steps that count.
        trajectory: trajectory id per step; any integers, rows in any order.
        last: True on the last step of each trajectory.

    Raises:
        InputError: if a dtype or shape is wrong, or a trajectory has not exactly one last step, or several prompts.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.steps import trajectories
        >>> found = trajectories(
        ...     group=torch.tensor([5, 5, 5]), live=torch.tensor([True, False, True]),
        ...     trajectory=torch.tensor([1, 1, 2]), last=torch.tensor([False, True, True]),
        ... )
        >>> found.last, found.live, found.place
        (tensor([1, 2]), tensor([True, True]), tensor([0, 0, 1]))
    """
    rows = last_steps(trajectory=trajectory, last=last)
    place = torch.unique(trajectory.long(), return_inverse=True)[1]
    _require_one_prompt(group, rows[place], trajectory)
    alive = torch.zeros(len(rows), dtype=torch.int64, device=live.device).index_add(0, place, live.long()) > 0
    return Trajectories(rows, alive, place)


@validate()
def over_trajectories(  # noqa: PLR0913 - an estimator's columns, and the trajectory of each step
    estimator: Callable[..., Float[Tensor, " K"]],
    reward: Float[Tensor, " B"],
    *,
    group: Int[Tensor, " B"],
    live: Bool[Tensor, " B"],
    trajectory: Int[Tensor, " B"],
    last: Bool[Tensor, " B"],
) -> Float[Tensor, " B"]:
    r"""Compute one advantage per trajectory by an outcome estimator, and repeat it at each live step.

    .. math:: A_b = \hat A_{\tau(b)}, \quad \hat A = f\left((r_{last(\tau)})_\tau\right)

    Args:
        estimator: called with ``reward``, ``group=`` and ``live=`` of one row per trajectory, as
            ``signal.advantage.grpo.advantages`` with its numbers filled in; temporal estimators read
            tokens and cannot be passed here.
        reward: outcome per step, in reward units; the outcome of the last step counts for the trajectory.
        group: prompt id per step; equal for the steps of a trajectory.
        live: True where the step has at least one trained token.
        trajectory: trajectory id per step; any integers, rows in any order.
        last: True on the last step of each trajectory.

    Returns:
        Advantage per step, in the unit of the estimator; ``align.spread`` repeats it at the step's tokens. Exactly 0
        where ``live`` is False. A trajectory counts as live if any of its steps is live.

    Raises:
        InputError: if a dtype or shape is wrong, also of the estimator's result, or if a trajectory has not exactly one
            last step, or several prompts.

    Source:
        The outcome of a trajectory as the reward of each of its actions, as in REINFORCE (Williams, 1992)
        with the group's baseline, in which each trajectory counts once, whatever its number of steps.

    Example:
        >>> from functools import partial
        >>> import torch
        >>> from rl_sentinel.signal.advantage import grpo
        >>> from rl_sentinel.signal.steps import over_trajectories
        >>> one = torch.tensor([True, True, True])
        >>> over_trajectories(
        ...     partial(grpo.advantages, standardize=False, epsilon=0.0), torch.tensor([0.0, 1.0, 0.0]),
        ...     group=torch.tensor([5, 5, 5]), live=one, trajectory=torch.tensor([1, 1, 2]),
        ...     last=torch.tensor([False, True, True]),
        ... )
        tensor([ 0.5000,  0.5000, -0.5000])
    """
    takes("estimator", estimator, 1, "group", "live")
    found = trajectories(group=group, live=live, trajectory=trajectory, last=last)
    by_trajectory = estimator(reward[found.last], group=group[found.last], live=found.live)
    require_columns(found.live, "one number per trajectory", advantage=by_trajectory)
    return found.repeated(by_trajectory, live=live)


def _require_one_prompt(group: Tensor, final: Tensor, trajectory: Tensor) -> None:
    refuse_where(
        group != group[final],
        lambda at: (
            f"group{at} is {int(group[at[0]])}, expected {int(group[final[at[0]]])}, that of the last step of "
            f"trajectory {int(trajectory[at[0]])}: a trajectory belongs to one prompt"
        ),
    )
