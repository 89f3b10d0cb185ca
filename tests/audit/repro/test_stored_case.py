"""A stored finding as work for a child, or why there is none."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from report_fixtures import evidence
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.unit import Unit
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.audit.repro.stored_case import Replay, replays
from rl_sentinel.audit.sandbox.job import Event
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.law import Law
from specimens import specimen

HERE = Path(__file__).parent
REQUEST = Request(task="replay", framework="f", root=str(HERE), version="")


def _unit(boundary: Boundary, setting: str, chosen: list[Law], digest: str = "") -> Unit:
    return Unit(Target(root=HERE), boundary, setting, chosen, {}, replace(REQUEST, target={"digest": digest}))


def _answer(compute: Any) -> Event:
    boundary = specimen(compute, reads="reward mask", path="m.estimator")
    [job] = replays([evidence()], [boundary], [], laws(), _unit)
    assert isinstance(job, Replay)
    events: list[Event] = []
    job.run(events.append)
    return events[-1]


def test_case_is_tried_on_the_boundary_of_its_name() -> None:
    leaking = _answer(lambda b: (b.reward - b.reward.mean()).unsqueeze(1) * b.mask)
    assert (leaking["status"], leaking["number"], leaking["law"]) == ("reproduced", 0, "MSK001")
    assert float(leaking["distance"]) > 0
    assert _answer(lambda b: b.reward.unsqueeze(1) * b.mask)["status"] == "fixed"

    def fail(batch: Batch) -> Any:
        if batch.rows == 2 and not batch.live[1]:
            raise KeyError("uid")
        return batch.reward.unsqueeze(1) * batch.mask

    failed = _answer(fail)
    assert (failed["status"], failed["reason"]) == ("not-reproducible", "KeyError: 'uid'")


def test_what_the_target_has_not_is_told() -> None:
    boundary = specimen(lambda b: b.reward, reads="reward mask", path="m.estimator", settings={"other": {}})
    unbound = Unbound("m.gone", "advantage", "m.gone is absent")
    records = [evidence(boundary="m.none"), evidence(), evidence(boundary="m.gone"), evidence(law="XYZ999")]
    told = list(replays(records, [boundary], [unbound], laws(), _unit))
    assert [(t["number"], t["status"], t["reason"]) for t in told if isinstance(t, dict)] == [
        (0, "not-reproducible", "m.none: the target has no such boundary"),
        (1, "not-reproducible", "m.estimator: the boundary has no setting 'default' in this target"),
        (2, "not-reproducible", "m.gone: m.gone is absent"),
        (3, "not-reproducible", "XYZ999 is not a known law"),
    ]


def test_edited_stage_and_knobs_are_told() -> None:
    boundary = specimen(lambda b: b.reward, reads="reward mask", path="m.estimator", settings={"default": {"n": 1}})
    mine = evidence(knobs={"n": 2}, target={"spec": "verl==1.0", "digest": "d"})
    for record, digest, words in (
        (evidence(stage="kl"), "", r"\[stage\] is 'kl', expected 'advantage' as in the target"),
        (mine, "d", r"\[knobs.n\] is 2, expected 1 as in the target"),
    ):
        with pytest.raises(SentinelError, match=words):
            list(replays([record], [boundary], [], laws(), partial(_unit, digest=digest)))
    assert isinstance(next(replays([mine], [boundary], [], laws(), partial(_unit, digest="other"))), Replay)


def test_override_of_what_is_no_setting_is_told() -> None:
    more: dict[str, Any] = {"settings": {"default": {"n": 1}}, "claims": {"knob:clip": "1|2"}}
    boundary = specimen(lambda b, **_: b.reward, reads="reward mask", path="m.estimator", **more)
    for key in ("n", "clip"):
        record = evidence()
        record["constructed_scenario"]["override"] = {key: 2}
        assert isinstance(next(replays([record], [boundary], [], laws(), _unit)), Replay)
    record["constructed_scenario"]["override"] = {"nonesuch": 2}
    with pytest.raises(
        SentinelError, match=r"\[constructed_scenario.override\] has 'nonesuch', expected .*\(clip, n\)"
    ):
        list(replays([record], [boundary], [], laws(), _unit))


def test_case_on_which_nothing_can_be_compared_has_a_reason() -> None:
    record = evidence()
    record["constructed_scenario"]["batch"]["mask"]["values"] = [[True], [True]]
    boundary = specimen(
        lambda b: (b.reward - b.reward.mean())[:, None] * b.mask, reads="reward mask", path="m.estimator"
    )
    (replay,) = replays([record], [boundary], [], laws(), _unit)
    assert isinstance(replay, Replay)
    seen: list[Event] = []
    replay.run(seen.append)
    assert seen[-1]["status"] == "not-reproducible"
    assert (
        "the law has nothing to compare on this case: the case was edited or the law has changed, audit again"
        in seen[-1]["reason"]
    )
