"""Compute the influence map: which output cells change when one input cell changes."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from rl_sentinel.adapters.loading import forbid_stand_ins
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.sandbox.job import Event
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.storage import plain
from rl_sentinel.search.filled_batch import filled
from rl_sentinel.search.small_cases import small_cases

#: How far each cell is moved, in the unit of its column.
AMOUNTS = (-1.0, 1.0, -0.1, 100.0)


#: Trained tokens of four responses, the prompt of each, and its length: the second group has a masked token and
#: a row without trained tokens.
MASK, GROUP, LENGTH = ((1, 1, 1), (1, 1, 0), (1, 0, 1), (0, 0, 0)), (0, 0, 1, 1), (3, 2, 3, 2)

#: Rewards of the responses, close enough that one step of ``AMOUNTS`` changes the order in a group.
REWARD = (1.0, 0.0, 1.0, 0.5)

#: Name of the single piece of work in events.
_PIECE = "influence"


@dataclass(frozen=True, slots=True)
class Influence:
    """The job of a child process that computes the influence map of one boundary under one setting."""

    boundary: Boundary
    setting: str
    root: Path

    @property
    def name(self) -> tuple[str, str]:
        """Boundary and setting."""
        return self.boundary.path, self.setting

    def pieces(self) -> list[str]:
        """The name of the only piece."""
        return [_PIECE]

    def without(self, done: Collection[str]) -> Self:  # noqa: ARG002 - there is only one piece
        """Return this job: its single piece cannot be left out."""
        return self

    def unfinished(self, piece: str, reason: str) -> Event:
        """Report that the map could not be computed, with the reason."""
        return {"event": "verdict", "law": piece, "outcome": "errored", "reason": reason}

    def run(self, send: Callable[[Event], None]) -> None:
        """Send the map, or the reason why it cannot be computed."""
        send({"event": "start", "law": _PIECE})
        try:
            result = influence(self.boundary, self.setting)
        except Exception as error:  # noqa: BLE001 - any exception of the target becomes the reason
            send(self.unfinished(_PIECE, f"{type(error).__name__}: {error}"))
            return
        if isinstance(result, str):
            send(self.unfinished(_PIECE, result))
        else:
            send({"event": "influence", "law": _PIECE, "path": self.boundary.path, "map": result})


def influence(boundary: Boundary, setting: str) -> dict[str, Any] | str:
    """The influence map of a boundary, or the reason why it cannot be computed.

    The map is computed on a batch of two groups or, if the target refuses this batch, on the largest small case that it
    accepts. It has the mask and the groups of the case and, for each cell of a signal column, the output cells that
    moved; a cell that moves no output is left out.
    """
    refusal = ""
    richest = Case(filled(MASK, reward=REWARD, group=GROUP, length=LENGTH), setting)
    for case in (richest, *sorted(small_cases(setting), key=lambda c: -c.batch.mask.numel())):
        try:
            with forbid_stand_ins():
                return _map(Asker(boundary, {}), case)
        except (Refused, NotApplicable) as error:
            refusal = refusal or str(error)
    return f"every small case is refused: {refusal}"


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
            for place in cells.tolist():
                if place not in reached.setdefault(name, []):
                    reached[name].append(place)
    return {k: sorted(v) for k, v in reached.items() if v}
