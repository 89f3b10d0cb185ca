"""Estimators that take the responses of a prompt from the order of the rows, not from prompt ids."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import torch

from rl_sentinel.adapters.kit.layout_trial import outputs_on
from rl_sentinel.adapters.kit.prompt_groups import BY_POSITION, FixedGroups, GroupsOf
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.user_arguments import probe_batch
from rl_sentinel.adapters.kit.user_layouts import Domains
from rl_sentinel.adapters.own_trainer.composition import Composition
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.search.preconditions import repeats_trajectory


def with_groups(composed: Composition, boundary: Boundary, numbers: Settings) -> Boundary:
    """The boundary of an estimator; if it groups by position, its batches have the order of the trainer's rows.

    The trainer passes ``rollout.responses`` adjacent responses per prompt, one row each. If a trajectory has a row per
    turn, it passes the last one. On other batches such an estimator fails, or compares responses of different prompts.

    Raises:
        SentinelError: if a parameter of the estimator has another number of responses.
    """
    rollout = composed.recipe.rollout
    if rollout.responses == 1:
        return boundary
    groups = FixedGroups(rollout.responses)
    by_step = rollout.turns > 1 and not rollout.merged
    whole = replace(boundary, domain=_in_turn(boundary.domain, one_step)) if by_step else boundary
    by_position = _depends_on_position(composed.target, whole, groups)
    if "group" not in inspect.signature(composed.selection.choices.estimator).parameters:
        sizes = [name for name in numbers if role_of(name) == "group_size"]
        _require_size({name: numbers[name] for name in sizes}, rollout.responses)
        by_position = by_position or bool(sizes)
    if not by_position:
        return boundary
    requires = (*BY_POSITION, GroupsOf(groups.size), *((has_one_step,) if by_step else ()))
    return replace(whole, domain=_in_turn(whole.domain, groups), requires=requires)


def one_step(batch: Batch) -> Batch:
    """Make each row a trajectory of one step; the batch is unchanged if its rows are such trajectories."""
    rows = torch.arange(batch.rows, device=batch.device)
    if not repeats_trajectory(batch) and bool(batch.last_step.all()):
        return batch
    return with_columns(batch, trajectory=rows, last_step=torch.ones_like(batch.last_step), step=torch.zeros_like(rows))


def has_one_step(inputs: Inputs) -> str:
    """The reason why a batch has more rows than the estimator gets: a trajectory has several steps."""
    return "a trajectory has several steps" if repeats_trajectory(inputs.batch) else ""


def _in_turn(first: Callable[[Batch], Batch] | None, then: Callable[[Batch], Batch]) -> Domains:
    return Domains((first, then) if first else (then,))


def _require_size(stated: Settings, responses: int) -> None:
    for name, size in stated.items():
        if size != responses:
            raise SentinelError(
                f"estimator.{name} is {size}, expected {responses}, the value of rollout.responses: "
                "the estimator groups responses by their position"
            )


def _depends_on_position(target: Target, boundary: Boundary, groups: FixedGroups) -> bool:
    """Whether the order of the rows changes a row's advantage, or the estimator fails if one row is left out."""
    batch = groups(probe_batch())
    order = torch.arange(batch.rows, device="cpu").roll(-1)
    try:
        usual, moved = (_advantage(target, boundary, rows) for rows in (batch, _rows(batch, order)))
    except Exception:  # noqa: BLE001 - it fails for another reason, which the laws report
        return False
    try:
        _advantage(target, boundary, _rows(batch, order[1:]))
    except Exception:  # noqa: BLE001 - any exception means that it needs whole groups
        return True
    return not torch.allclose(usual[order], moved, equal_nan=True)


def _rows(batch: Batch, order: torch.Tensor) -> Batch:
    """Rows of a batch in another order, with new trajectory ids, because the trainer sorts rows by trajectory."""
    return with_columns(take_rows(batch, order), trajectory=torch.arange(len(order), device=order.device))


def _advantage(target: Target, boundary: Boundary, batch: Batch) -> torch.Tensor:
    return outputs_on(target, boundary, batch if boundary.domain is None else boundary.domain(batch))["advantage"]
