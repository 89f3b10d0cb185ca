"""The influence map as work for a child."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.audit.engine.influence import Influence, influence
from rl_sentinel.audit.sandbox.job import Event
from rl_sentinel.core.batch import Batch
from specimens import specimen


def _centered(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward[0]).unsqueeze(1) * batch.mask


def _sent(compute: Any) -> list[Event]:
    events: list[Event] = []
    Influence(specimen(compute, reads="reward mask"), "default", Path()).run(events.append)
    return events


def test_map_shows_which_cells_move() -> None:
    found = influence(specimen(_centered, reads="reward mask"), "default")
    assert isinstance(found, dict)
    mask = torch.tensor(found["mask"])
    trained = [[row, t] for row, t in torch.nonzero(mask).tolist()]
    assert found["moves"]["reward[0]"]["advantage"] == [cell for cell in trained if cell[0] != 0]
    last = len(found["mask"]) - 1
    own = [cell for cell in trained if cell[0] == last]
    assert found["moves"].get(f"reward[{last}]", {"advantage": []})["advantage"] == own


def test_job_sends_one_map() -> None:
    """Under its piece, so that a child that dies before is told."""
    start, sent = _sent(_centered)
    assert (start["event"], sent["event"], sent["path"]) == ("start", "influence", "specimen")
    assert start["law"] == sent["law"] == "influence"


def test_what_has_no_map_says_why() -> None:
    def refuse(_batch: Batch) -> Tensor:
        raise ValueError("never")

    def fail(_batch: Batch) -> Tensor:
        raise KeyError("uid")

    reasons = [_sent(f)[1]["reason"] for f in (refuse, fail)]
    assert reasons == ["every small case is refused: ValueError: never", "KeyError: 'uid'"]
