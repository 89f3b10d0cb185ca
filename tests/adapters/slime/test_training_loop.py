"""slime's training loops, on specimens of their call shapes in words of our own."""

from typing import Any

import pytest

from adapters.checks import Loads, answering, check_verdict, the_only
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.slime import FRAMEWORK, training_loop
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002
from rl_sentinel.laws.resume_differs import LAW as RES001

SOURCE = """
    import ray

    from slime.ray.placement_group import create_placement_groups, create_rollout_manager, create_training_models
    from slime.utils.misc import init_tracking

    def train(args):
        init_tracking(args)
        groups = create_placement_groups(args)
        manager, num_rollout_per_epoch = create_rollout_manager(args, groups["rollout"])
        actor, critic = create_training_models(args, groups, manager)
        actor.update_weights()
        for number in range(args.start_rollout_id, args.num_rollout):
            batch = ray.get(manager.generate.remote(number))
            if args.offload_rollout:
                ray.get(manager.offload.remote())
            acts = not args.use_critic or number >= args.num_critic_only_steps
            if args.use_critic:
                ray.get(critic.async_train(number, batch))
            if acts:
                ray.get(actor.async_train(number, batch))
            if args.save_interval and (number + 1) % args.save_interval == 0:
                if ACTOR:
                    actor.save_model(number, force_sync=True)
                if args.use_critic:
                    critic.save_model(number, force_sync=True)
                if DATA:
                    ray.get(manager.save.remote(number))
            if args.offload_train:
                actor.offload()
            if SENT:
                actor.update_weights()
"""

SOUND = {"ACTOR": "acts", "DATA": "args.rollout_global_dataset", "SENT": "True"}

GROUPS = """
    def create_placement_groups(args): ...

    def create_rollout_manager(args, group): ...

    def create_training_models(args, groups, manager): ...
"""


#: A loop that samples the next rollout while it trains.
AHEAD = (
    SOURCE[: SOURCE.index("        actor.update_weights()")]
    + """
        actor.update_weights()
        ready = manager.generate.remote(args.start_rollout_id)
        for number in range(args.start_rollout_id, args.num_rollout):
            batch = ray.get(ready)
            if number + 1 < args.num_rollout:
                if EARLY:
                    ray.get(manager.save.remote(number))
                ready = manager.generate.remote(number + 1)
            if args.use_critic:
                ray.get(critic.async_train(number, batch))
                critic.save_model(number)
            if not args.use_critic or number >= args.num_critic_only_steps:
                ray.get(actor.async_train(number, batch))
                actor.save_model(number)
            if not EARLY or number + 1 == args.num_rollout:
                ray.get(manager.save.remote(number))
            if (number + 1) % args.update_weights_interval == 0:
                ray.get(ready)
                actor.update_weights()
"""
)


def _bound(loads: Loads, path: str = "train.py", loop: str = SOURCE, **words: str) -> tuple[Target, Boundary]:
    source = loop
    for name, word in {**SOUND, **words}.items():
        source = source.replace(name, word)
    files = {
        "slime/__init__.py": "",
        "slime/ray/placement_group.py": GROUPS,
        "slime/utils/misc.py": "def init_tracking(args):\n    raise RuntimeError('a log is opened')\n",
        "ray.py": "",
        path: source,
    }
    target = loads(FRAMEWORK, files)
    return target, the_only(training_loop.boundaries(target))


@pytest.mark.parametrize("setting", list(training_loop.SETTINGS))
@pytest.mark.parametrize("law", [RES001, REF001, CFG002])
def test_sound_loop(loads: Loads, law: Law, setting: str) -> None:
    target, boundary = _bound(loads)
    assert answering({("loop", setting): boundary}, target) == []
    check_verdict(law, boundary, setting, target, found=False)


@pytest.mark.parametrize(
    ("law", "words", "setting"),
    [
        (REF001, {"SENT": "args.offload_rollout"}, "engines stay"),
        (CFG002, {"SENT": "args.offload_rollout"}, "engines stay"),
        (REF001, {"SENT": "number % 2"}, "engines offloaded"),
        (RES001, {"ACTOR": "args.use_critic"}, "engines stay"),
        (RES001, {"ACTOR": "number"}, "critic"),
        (RES001, {"DATA": "args.use_critic"}, "engines offloaded"),
        (RES001, {"DATA": "acts"}, "critic first"),
    ],
    ids=[
        "stale",
        "stale if they stay",
        "every second time",
        "actor never saved",
        "actor saved late",
        "data never saved",
        "data saved if the actor trains",
    ],
)
def test_broken_loop(loads: Loads, law: Law, words: dict[str, Any], setting: str) -> None:
    target, boundary = _bound(loads, **words)
    check_verdict(law, boundary, setting, target, found=True)


def test_actor_that_always_trains(loads: Loads) -> None:
    """A position that is saved only with updates of the actor is right without rollouts for the critic alone."""
    target, boundary = _bound(loads, DATA="acts")
    check_verdict(RES001, boundary, "critic", target, found=False)


@pytest.mark.parametrize(("early", "found"), [("True", False), ("False", True)])
@pytest.mark.parametrize("setting", ["engines stay", "critic", "critic first"])
def test_position_while_the_next_rollout_runs(loads: Loads, setting: str, early: str, *, found: bool) -> None:
    """A position that is saved after the next rollout has begun leaves out its prompts."""
    target, boundary = _bound(loads, "train_async.py", AHEAD, EARLY=early)
    assert "engines offloaded" not in boundary.settings
    assert "updates behind" not in boundary.outputs
    check_verdict(RES001, boundary, setting, target, found=found)


def test_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_round_trips(target, [boundary])
