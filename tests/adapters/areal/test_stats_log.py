"""The steps of AReaL's log, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, answering, check_verdict, outputs_of, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.stats_log import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006
from rl_sentinel.laws.resume_differs import LAW as RES001

LOGGER = """
    import wandb

    class StatsLogger:
        def __init__(self, config, ft_spec):
            self.config = config.stats_logger
            self.init()
            self.latest = FIRST

        def init(self):
            wandb.init()

        def state_dict(self):
            return {"latest": self.latest}

        def load_state_dict(self, state):
            self.latest = LOADED

        def commit(self, epoch, step, global_step, data):
            self.latest = NEXT
            wandb.log(data, step=self.latest)
            self.print_stats(data)
"""

SOUND = {"FIRST": "-1", "LOADED": "state['latest']", "NEXT": "max(global_step, self.latest + 1)"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(LOGGER, SOUND | broken)
    target = loads(FRAMEWORK, {"areal/utils/stats_logger.py": source}, {"wandb.py": "def init(): raise OSError"})
    boundary = the_bound(boundaries(target))
    return target, boundary


def test_by_hand(loads: Loads) -> None:
    """Three steps, restarted after the first."""
    target, boundary = _bound(loads)
    check_round_trip(target, boundary)
    assert answering({("log", "default"): boundary}, target) == []
    values = outputs_of(target, boundary, "default", batch_of(torch.ones(3, 1, dtype=torch.bool)))
    assert values["step of the log"].tolist() == values["step after a restart"].tolist() == [0, 1, 2]
    assert values["numbers at another step"].item() == 0


@pytest.mark.parametrize(
    ("law", "broken", "found"),
    [
        (MET006, {}, False),
        (RES001, {}, False),
        (MET006, {"FIRST": "0"}, True),
        (MET006, {"NEXT": "global_step + 1"}, True),
        (RES001, {"LOADED": "2 * state['latest']"}, True),
    ],
)
def test_found_where_broken_alone(loads: Loads, law: Law, broken: dict[str, str], found: bool) -> None:
    """A count that starts one late, and a state that is restored as another number."""
    target, boundary = _bound(loads, **broken)
    check_verdict(law, boundary, "default", target, found=found)


def test_releases_without_a_state(loads: Loads) -> None:
    source = LOGGER.replace("load_state_dict", "load")
    assert list(boundaries(loads(FRAMEWORK, {"areal/utils/stats_logger.py": source}))) == []
