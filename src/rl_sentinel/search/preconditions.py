"""Preconditions of laws: conditions on a batch that must hold before a law is checked on it."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import EXCLUDED, Batch, take_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.errors import Refused
from rl_sentinel.core.law import Level


def distinct(labels: Tensor) -> list[int]:
    """The different labels of ``[B]`` rows, in ascending order."""
    return sorted(set(labels.tolist()))


def repeats_trajectory(batch: Batch) -> bool:
    """Whether some trajectory has more than one row; each row is a step."""
    return len(distinct(batch.trajectory)) < batch.rows


def without_influence(boundary: Boundary, batch: Batch, live: Tensor) -> Tensor:
    """``[B]``: rows whose values must have no effect, because they are not ``live``.

    If the boundary claims steps, only rows of trajectories without any live step count: the outcome on the last step
    of a trajectory belongs to all of its steps.
    """
    if value_of(boundary.claims.trajectories) != "step-wise":
        return ~live
    alive = set(batch.trajectory[live].tolist())
    return torch.tensor([i not in alive for i in batch.trajectory.tolist()], dtype=torch.bool, device=batch.device)


def last_steps(boundary: Boundary, batch: Batch) -> tuple[Batch, Tensor]:
    """The rows with the outcomes to compare, and for each row of the batch, the index of the row with its outcome.

    These are all rows or, if the boundary claims steps, the last row of each trajectory.

    Raises:
        Refused: if a trajectory has no last step, or two.
    """
    rows = torch.arange(batch.rows, device=batch.device)
    if value_of(boundary.claims.trajectories) != "step-wise":
        return batch, rows
    same = (batch.trajectory.unsqueeze(1) == batch.trajectory.unsqueeze(0)) & batch.last_step
    if bool((same.sum(1) != 1).any()):
        message = "each trajectory must have exactly one last step"
        raise Refused(message)
    finals = take_rows(batch, rows[batch.last_step])
    return finals, (finals.trajectory.unsqueeze(0) == batch.trajectory.unsqueeze(1)).int().argmax(1)


def contiguous(labels: Tensor) -> bool:
    """Whether rows with the same label are adjacent."""
    return len(torch.unique_consecutive(labels)) == len(distinct(labels))


def groups_recognizable(boundary: Boundary, batch: Batch) -> bool:
    """Whether the boundary can find the groups: by id, or because the rows of each group are adjacent.

    True for a boundary that does not read groups.
    """
    by_id = value_of(boundary.claims.grouping) == "id" or "group" not in boundary.reads
    return by_id or contiguous(batch.group)


def live_in_group(batch: Batch) -> Tensor:
    """``[B]``: number of live rows in each row's group."""
    same = batch.group.unsqueeze(0) == batch.group.unsqueeze(1)
    return (same & batch.live).sum(dim=1)


def rewards_differ(batch: Batch) -> Tensor:
    """``[B]``: True where the rewards of the row's group are not all equal."""
    same = batch.group.unsqueeze(0) == batch.group.unsqueeze(1)
    return (same & (batch.reward.unsqueeze(0) != batch.reward.unsqueeze(1))).any(dim=1)


def last_trained(batch: Batch) -> Tensor:
    """``[B]``: position of the row's last trained token; 0 in a row that is not live."""
    return torch.where(
        batch.mask,
        torch.arange(batch.width, device=batch.device),
        torch.zeros((), dtype=torch.int64, device=batch.device),
    ).amax(dim=1)


def first_trained(batch: Batch) -> Tensor:
    """``[B]``: position of the row's first trained token; 0 in a row that is not live."""
    return batch.mask.int().argmax(dim=1)


def outcomes_compare(batch: Batch) -> bool:
    """Whether every outcome can be compared within its group.

    This needs rows that are scored, train their last token, are separate trajectories and have a sibling. A relative
    baseline does not define how estimators treat other rows.
    """
    ends = batch.live & (last_trained(batch) == batch.length - 1)
    return bool((ends & batch.scored & (live_in_group(batch) >= 2)).all()) and not repeats_trajectory(batch)


def level_of_dead_row(case: Case) -> Level:
    """``contested`` if the row ``draw["row"]`` is excluded because it was rejected or truncated, else ``fault``."""
    why = int(case.batch.excluded[int(case.draw.get("row") or 0)])
    return "contested" if why in (EXCLUDED["rejected"], EXCLUDED["truncated"]) else "fault"
