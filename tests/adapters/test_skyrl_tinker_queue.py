"""The order in which SkyRL's Tinker engine processes requests, on a specimen in words of our own."""

from types import SimpleNamespace

import pytest

from adapters.checks import Loads, check_verdict, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, tinker_queue
from rl_sentinel.adapters.skyrl.tinker_queue_fakes import REQUESTS, Column, Query, Session, least
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

ENGINE = """
    import time
    from enum import Enum
    from types import SimpleNamespace

    RequestType = Enum("RequestType", ["FORWARD_BACKWARD", "OPTIM_STEP", "SAVE_WEIGHTS_FOR_SAMPLER"])
    RequestStatus = Enum("RequestStatus", ["PENDING", "COMPLETED"])
    types = SimpleNamespace(RequestType=RequestType)
    Session = select = func = FutureDB = None
    NEVER = 10**9

    class TinkerEngine:
        def process_pending_requests(self):
            while True:
                with Session(self.db_engine) as session:
                    waiting = select(FutureDB).where(FutureDB.status == RequestStatus.PENDING)
                    found = session.exec(waiting.order_by(FutureDB.request_id)).all()
                passes = [one for one in found if one.request_type == RequestType.FORWARD_BACKWARD]
                others = [one for one in found if one not in passes]
                step = min([one.request_id for one in others if one.request_type == RequestType.OPTIM_STEP] + [NEVER])
                batch = [one for one in passes if BATCHED]
                blocked = min([one.request_id for one in passes if one not in batch] + [NEVER])
                if batch:
                    requests = {str(one.request_id): (one.model_id, one.request_data) for one in batch}
                    self._complete_futures(self.process_forward_backward(requests))
                for one in others:
                    if SINGLE:
                        self.process_single_request(one.request_type, one.model_id, one.request_data)
                        self._complete_futures({str(one.request_id): None})
                time.sleep(0.1)
"""


def _bound(loads: Loads, batched: str, single: str) -> tuple[Target, Boundary]:
    source = ENGINE.replace("BATCHED", batched).replace("SINGLE", single)
    target = loads(FRAMEWORK, {"skyrl/__init__.py": "", "skyrl/tinker/engine.py": source})
    return target, the_bound(tinker_queue.boundaries(target))


@pytest.mark.parametrize(
    ("batched", "single", "found"),
    [
        ("one.request_id < step", "one.request_id < blocked", False),
        ("one.request_id < step", "True", True),
        ("True", "one.request_id < blocked", True),
        ("one.request_id < step", "False", True),
    ],
    ids=["in order", "steps overtake a pass", "passes overtake a step", "no step at all"],
)
def test_each_step_applies_its_own_gradient(loads: Loads, batched: str, single: str, *, found: bool) -> None:
    target, bound = _bound(loads, batched, single)
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, "steps in advance", target, found=found)


def test_releases_without_the_engine_or_with_one_that_fails(loads: Loads) -> None:
    assert list(tinker_queue.boundaries(loads(FRAMEWORK, {"skyrl/__init__.py": ""}))) == []
    broken = loads(FRAMEWORK, {"skyrl/__init__.py": "", "skyrl/tinker/engine.py": ENGINE + "\n    1 / 0\n"})
    assert [type(one) for one in tinker_queue.boundaries(broken)] in ([], [Unbound])


def test_queries_of_the_fake_table() -> None:
    """Conditions, groups and columns select what a database would."""
    rows = [
        SimpleNamespace(request_id=n, request_type=kind, model_id=model, request_data={}, status="pending")
        for n, (kind, model) in enumerate([("pass", "a"), ("step", "b"), ("step", "a"), ("step", "a")], 1)
    ]
    table, steps = REQUESTS, Column("request_type") == "step"

    def results(query: Query) -> object:
        with Session(rows) as session:
            return session.exec(query).all()

    first = Query(table.model_id, least(table.request_id).label("first")).where(steps).group_by(table.model_id)
    assert results(first) == [("b", 2), ("a", 3)]
    assert results(Query(table.request_id).where(steps & table.model_id.in_({"a"}))) == [(3,), (4,)]
    assert results(Query(table.request_id).where((table.request_id == 1) | (table.model_id != "a"))) == [(1,), (2,)]
    assert results(Query(table).where(steps).order_by(table.request_id)) == rows[1:]
    assert results(Query(table.request_data["id"].as_string()).where(table.model_id == "c")) == []
    assert len({table.model_id, table.status}) == 2
