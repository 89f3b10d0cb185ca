"""How far AReaL's generation runs ahead, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK, staleness
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.version_miscounted import LAW as STA001

MANAGER = """
    class StalenessManager:
        def __init__(self, version_provider, max_concurrent_rollouts, consumer_batch_size, max_staleness):
            self.weights, self.at_a_time, self.size = version_provider, max_concurrent_rollouts, consumer_batch_size
            self.oldest, self.waiting, self.running, self.accepted = max_staleness, 0, 0, 0

        def get_capacity(self):
            most = (self.oldest + self.weights.get_version() + AHEAD) * self.size
            return min(self.at_a_time - self.running, most - COUNTED)

        def on_version_recovered(self, version):
            self.accepted = RECOVERED

        def on_rollout_enqueued(self):
            self.waiting += 1

        def on_rollout_submitted(self):
            self.waiting, self.running = self.waiting - 1, self.running + 1

        def on_rollout_accepted(self):
            self.running, self.accepted = self.running - 1, self.accepted + 1

        def on_rollout_rejected(self):
            self.running -= 1
            self.accepted += REJECTED
"""

#: The same where the version is an argument and nothing waits, as in older releases.
OLDER = (
    ("version_provider, ", ""),
    ("version_provider, ", "None, "),
    ("get_capacity(self)", "get_capacity(self, current_version)"),
    ("self.weights.get_version()", "current_version"),
    ("on_rollout_enqueued", "on_rollout_waiting"),
)

SOUND = {"AHEAD": "1", "COUNTED": "self.accepted - self.running", "RECOVERED": "version * self.size", "REJECTED": "0"}


def _bound(loads: Loads, *, older: bool = False, **broken: str) -> tuple[Target, Boundary]:
    source = MANAGER
    for before, after in OLDER if older else ():
        source = source.replace(before, after, 1)
    source = rewritten(source, SOUND | broken)
    part = "core" if older else "infra"
    target = loads(FRAMEWORK, {"areal/__init__.py": "", f"areal/{part}/staleness_manager.py": source})
    boundary = the_bound(staleness.boundaries(target))
    return target, boundary


@pytest.mark.parametrize("older", [False, True])
def test_sound(loads: Loads, older: bool) -> None:
    target, boundary = _bound(loads, older=older)
    assert answering({("manager", setting): boundary for setting in boundary.settings}, target) == []
    for setting in boundary.settings:
        check_verdict(STA001, boundary, setting, target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    ("broken", "setting"),
    [
        ({"AHEAD": "0"}, "two behind"),
        ({"COUNTED": "self.accepted"}, "on policy"),
        ({"RECOVERED": "0"}, "on policy"),
        ({"REJECTED": "1"}, "some rejected"),
    ],
)
def test_miscounted(loads: Loads, broken: dict[str, str], setting: str) -> None:
    """The update at work, running rollouts, a recovered version, and rejected rollouts, each counted wrongly."""
    target, boundary = _bound(loads, older=False, **broken)
    check_verdict(STA001, boundary, setting, target, found=True)
