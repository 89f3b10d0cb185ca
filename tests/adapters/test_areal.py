"""AReaL's adapter, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.areal_specimen import files
from adapters.checks import Loads, answering, bound, check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.core.boundary import Unbound
from rl_sentinel.laws.suppressed_reward_shifts_signal import LAW as MSK003


def test_all_boundaries_answer(loads: Loads) -> None:
    """Each family binds and its outputs move."""
    target = loads(FRAMEWORK, files(early=True))
    boundaries = bound(FRAMEWORK, target)
    assert len(boundaries) == 41
    assert answering(boundaries, target) == []


@pytest.mark.slow
def test_every_call_reads_back(loads: Loads) -> None:
    """Columns and arguments of every boundary survive the round trip."""
    target = loads(FRAMEWORK, files(early=True))
    check_round_trips(target, bound(FRAMEWORK, target).values())


@pytest.mark.parametrize(("early", "found"), [(True, False), (False, True)])
def test_suppressed_reward(loads: Loads, early: bool, found: bool) -> None:
    """Void before the mean, the reward moves nothing; after it, it moves the rows that ended."""
    target = loads(FRAMEWORK, files(early=early))
    boundaries = bound(FRAMEWORK, target)
    setting = "no EOS masked, batch mean"
    check_verdict(MSK003, boundaries["_compute_advantages", setting], setting, target, found=found)


def test_missing_functions_are_unbound(loads: Loads) -> None:
    """A tree without the actor fails with the name of what is missing."""
    tree = files(early=True)
    del tree["areal/trainer/ppo/actor.py"]
    unbound = [b for b in FRAMEWORK.boundaries(loads(FRAMEWORK, tree)) if isinstance(b, Unbound)]
    assert [(b.path, b.stage) for b in unbound] == [
        ("areal.trainer.ppo.actor.PPOActor._compute_advantages", "advantage")
    ]


def test_a_script_names_what_its_imports_need() -> None:
    """The framework last and without its own requirements, which name another torch."""
    needs = FRAMEWORK.installation("1.0.4")
    assert needs.packages.startswith("numpy aiofiles aiohttp ")
    assert needs.alone == "megatron-core areal==1.0.4"


def test_a_release_without_returns_and_leave_one_out_binds_the_rest(loads: Loads) -> None:
    """A release after the flags of the first ones, and before the critic and the leave-one-out mean."""
    tree = {
        path: "\n".join(
            line for line in source.split("\n") if 'data["returns"] =' not in line and "leave1out" not in line
        )
        for path, source in files(early=True).items()
    }
    boundaries = bound(FRAMEWORK, loads(FRAMEWORK, tree))
    advantages = {setting: one for (name, setting), one in boundaries.items() if name == "_compute_advantages"}
    assert "group reward" in advantages
    assert "group reward, leave one out" not in advantages
    assert all("advantage" in one.outputs and "returns" not in one.outputs for one in advantages.values())
