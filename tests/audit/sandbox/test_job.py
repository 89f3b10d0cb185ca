"""Every kind of work for a child can be left out piece by piece, and told as lost."""

from pathlib import Path

import pytest

from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.influence import Influence
from rl_sentinel.audit.engine.unit import Unit
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.audit.repro.stored_case import Replay
from rl_sentinel.audit.sandbox.job import Job
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.search.small_cases import small_cases
from specimens import specimen

BOUNDARY = specimen(lambda b: b.reward, reads="reward mask", path="m.f")
REQUEST = Request(task="audit", framework="f", root="/r", version="")
UNIT = Unit(Target(root=Path("/r")), BOUNDARY, "default", [laws()["MSK001"], laws()["PUR001"]], {}, REQUEST)


@pytest.mark.parametrize(
    ("job", "name", "pieces", "event"),
    [
        (UNIT, ("m.f", "default"), ["MSK001", "PUR001"], "verdict"),
        (Influence(BOUNDARY, "default", Path("/r")), ("m.f", "default"), ["influence"], "influence-verdict"),
        (Replay(UNIT.without(["PUR001"]), small_cases()[0], 3), ("m.f", "default #3"), ["MSK001"], "replay"),
    ],
    ids=["unit", "influence", "replay"],
)
def test_job_keeps_its_word(job: Job, name: tuple[str, str], pieces: list[str], event: str) -> None:
    assert (job.name, job.pieces(), job.root) == (name, pieces, Path("/r"))
    lost = job.unfinished(pieces[0], "it died")
    assert (lost["event"], lost["law"], lost["reason"]) == (event.rpartition("-")[2], pieces[0], "it died")


def test_unit_goes_on_with_what_is_left() -> None:
    assert UNIT.without({"MSK001"}).pieces() == ["PUR001"]
