"""Accepted values of advantages: the readings of the formula of a claimed estimator, and the cases that they cover."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.formulas.algorithms import advantages_of, returns_of, spans_gaps
from rl_sentinel.search.comparison import places
from rl_sentinel.search.formula_reading import as_claimed
from rl_sentinel.search.preconditions import (
    groups_recognizable,
    last_steps,
    last_trained,
    live_in_group,
    outcomes_compare,
    repeats_trajectory,
    rewards_differ,
)


def are_comparable(boundary: Boundary, steps: Batch) -> bool:
    """Whether formulas of estimators determine the advantages of a batch.

    This needs outcomes that can be compared within their groups and differ, no rewards per token, and groups that the
    boundary can find. If a response has untrained tokens, the formula must define how credit passes them.
    """
    batch, _ = last_steps(boundary, steps)
    even = outcomes_compare(batch) and bool(rewards_differ(batch).any()) and not bool(batch.token_reward.any())
    gap = bool((batch.mask != batch.valid)[batch.live].any())
    return even and (not gap or spans_gaps(boundary)) and groups_recognizable(boundary, batch)


def accepted_advantages(boundary: Boundary, name: str, case: Case) -> tuple[dict[str, Tensor], Tensor]:
    """The accepted values of an output for each reading of the formula, and where they count.

    Without readings if the batch does not determine the values.
    """
    batch = case.batch
    finals, last_row = last_steps(boundary, batch)
    differ = rewards_differ(finals)[last_row]
    if boundary.own and boundary.claims.baseline:  # equal rewards cancel; at a framework, DEG002 judges the rounding
        differ = torch.ones_like(differ)
    where = places(boundary.outputs[name], batch, differ)
    alike = (batch.mask == finals.mask[last_row]).all(1)  # other forms are checked by PLC001
    where = where & (alike.unsqueeze(1) if where.dim() == 2 else alike)
    if not are_comparable(boundary, batch):
        return {}, where
    formula = returns_of if name == "returns" else advantages_of
    readings = {n: x[last_row] for n, x in formula(boundary, finals, boundary.settings_of(case)).items()}
    wide = boundary.outputs[name].axes == "B T"
    spread = {n: x.unsqueeze(1).expand(batch.mask.shape) if wide and x.dim() == 1 else x for n, x in readings.items()}
    return as_claimed(boundary, name, spread), where


def advantages_of_others(boundary: Boundary, name: str, case: Case, reading: str) -> tuple[Tensor, Tensor] | None:
    """The values of a reading over live rows only, and where they count; None if the batch does not determine them.

    A live row counts if its group has another one.
    """
    batch = case.batch
    sound = batch.scored & (last_trained(batch) == batch.length - 1) & (batch.mask == batch.valid).all(1)
    if not bool(sound[batch.live].all()) or bool(batch.token_reward.any()) or repeats_trajectory(batch):
        return None
    values = advantages_of(boundary, batch, boundary.settings_of(case))
    if reading not in values:
        return None
    where = places(boundary.outputs[name], batch, batch.live & (live_in_group(batch) >= 2))
    value = values[reading]
    wide = boundary.outputs[name].axes == "B T" and value.dim() == 1
    return value.unsqueeze(1).expand(batch.mask.shape) if wide else value, where
