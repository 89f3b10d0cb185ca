"""The influence map: which output cells move when one input cell moves."""

from typing import Any

import torch

from rl_sentinel.audit.worker.asking import Asker
from rl_sentinel.cases.small import small_cases
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.storage import plain
from rl_sentinel.frameworks.loading import while_running

#: How far each cell is moved, in the unit of its column.
AMOUNTS = (-1.0, 1.0, -0.1, 100.0)


def influence(boundary: Boundary) -> list[dict[str, Any]]:
    """One map per setting, on the small case that has most rows and that the target accepts.

    Each map names the case's mask and, for every read signal cell, the output cells that moved.
    """
    maps = []
    for setting in boundary.settings:
        for case in sorted(small_cases(setting), key=lambda c: -c.batch.mask.numel()):
            try:
                with while_running():
                    maps.append(_map(Asker(boundary, {}), case))
                break
            except (Refused, NotApplicable):
                continue
    return maps


def _map(ask: Asker, case: Case) -> dict[str, Any]:
    before = ask(case)
    moves: dict[str, dict[str, list[list[int]]]] = {}
    for column in sorted(ask.boundary.reads):
        if COLUMNS[column]["role"] != "signal":
            continue
        for cell in torch.nonzero(torch.ones_like(getattr(case.batch, column))).tolist():
            reached = _reached(ask, case, column, cell, before.values)
            if reached:
                moves[f"{column}{cell}"] = reached
    return {
        "setting": case.setting,
        "mask": plain(case.batch.mask),
        "group": plain(case.batch.group),
        "moves": moves,
    }


def _reached(
    ask: Asker,
    case: Case,
    column: str,
    cell: list[int],
    before: Any,  # noqa: ANN401 - a mapping
) -> dict[str, list[list[int]]]:
    reached: dict[str, list[list[int]]] = {}
    for amount in AMOUNTS:
        changed = getattr(case.batch, column).clone()
        changed[tuple(cell)] += amount
        batch = type(case.batch)(**{n: changed if n == column else getattr(case.batch, n) for n in COLUMNS})
        after = ask(with_batch(case, batch)).values
        for name, value in before.items():
            cells = torch.nonzero(~torch.isclose(value, after[name], equal_nan=True).reshape(value.shape or (1,)))
            for where in cells.tolist():
                if where not in reached.setdefault(name, []):
                    reached[name].append(where)
    return {k: sorted(v) for k, v in reached.items() if v}
