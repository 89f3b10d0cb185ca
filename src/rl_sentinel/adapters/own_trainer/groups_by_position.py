"""Estimators that take the responses of a prompt from the order of the rows, not from prompt ids."""

import inspect
from dataclasses import replace

import torch

from rl_sentinel.adapters.kit.layout_trial import outputs_on
from rl_sentinel.adapters.kit.prompt_groups import BY_POSITION, FixedGroups, GroupsOf
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.user_arguments import probe_batch
from rl_sentinel.adapters.kit.user_layouts import Domains
from rl_sentinel.adapters.own_trainer.composition import Composition, stated_claims
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import SentinelError


def with_groups(composed: Composition, boundary: Boundary, numbers: Settings) -> Boundary:
    """The boundary of an estimator; one that groups by position gets batches in the order of the trainer's.

    The trainer passes ``rollout.responses`` adjacent responses per prompt. Without them such an estimator fails, or
    compares responses of different prompts.

    Raises:
        SentinelError: if a parameter of the estimator has another number of responses.
    """
    rollout, claims = composed.recipe.rollout, stated_claims(composed, "estimator", "advantage")
    if rollout.responses == 1 or (rollout.turns > 1 and not rollout.merged):
        return boundary
    groups = FixedGroups(rollout.responses)
    by_position = _depends_on_position(composed.target, boundary, groups)
    if "group" not in inspect.signature(composed.selection.choices.estimator).parameters:
        sizes = [name for name in numbers if role_of(name) == "group_size"]
        _require_size({name: numbers[name] for name in sizes}, rollout.responses)
        by_position = by_position or bool(sizes) or claims.get("scope") == "group"
    if not by_position:
        return boundary
    domain = Domains((boundary.domain, groups) if boundary.domain else (groups,))
    return replace(boundary, domain=domain, requires=(*BY_POSITION, GroupsOf(groups.size)))


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
        usual, moved = (_advantage(target, boundary, rows) for rows in (batch, take_rows(batch, order)))
    except Exception:  # noqa: BLE001 - it fails for another reason, which the laws report
        return False
    try:
        _advantage(target, boundary, take_rows(batch, order[1:]))
    except Exception:  # noqa: BLE001 - any exception means that it needs whole groups
        return True
    return not torch.allclose(usual[order], moved, equal_nan=True)


def _advantage(target: Target, boundary: Boundary, batch: Batch) -> torch.Tensor:
    return outputs_on(target, boundary, batch if boundary.domain is None else boundary.domain(batch))["advantage"]
