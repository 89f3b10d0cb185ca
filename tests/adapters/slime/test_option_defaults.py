"""slime's options after validation, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, judged_at, outputs_of, rewritten
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.option_defaults import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

OPTIONS = """
    import json
    import os

    NAMES = "--start-rollout-id", "--eps-clip-high", "--eval-reward-key", "--eval-max-context-len"
    LIMITS = "--rollout-max-context-len", "--rollout-max-prompt-len"
    FILE = "--custom-config-path"

    def slime_validate_args(args):
        if args.load is None or not os.path.exists(args.load):
            if START:
                args.start_rollout_id = 0
        if args.eps_clip_high is None or CLIP:
            args.eps_clip_high = args.eps_clip
        if args.eval_reward_key is None or KEY:
            args.eval_reward_key = args.reward_key
        if args.eval_max_context_len is None:
            args.eval_max_context_len = args.rollout_max_context_len
            SHORT
        if args.rollout_max_context_len is None and WHOLE:
            args.rollout_max_context_len = args.rollout_max_response_len
        if args.rollout_max_prompt_len is None and args.rollout_max_context_len is not None:
            args.rollout_max_prompt_len = args.rollout_max_context_len - 1
        if args.custom_config_path:
            with open(args.custom_config_path) as file:
                for name, value in json.load(file).items():
                    if KEPT or not hasattr(args, name):
                        setattr(args, name, value)
"""

SOUND = {
    "START": "args.start_rollout_id is None",
    **dict.fromkeys(("CLIP", "KEY", "WHOLE"), "False"),
    "SHORT": "pass",
    "KEPT": "True",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(OPTIONS, SOUND | broken)
    target = loads(FRAMEWORK, {"slime/utils/arguments.py": source})
    return target, by_setting(boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, found = _bound(loads)
    given = ["options given, new run", "options given, restart"]
    assert list(found) == [*given, "options not given", "limits not set", "options of a file"]
    check_calls(target, found.values())


def test_by_hand(loads: Loads) -> None:
    """Options that are given stay; a text counts 1; one that is not given defaults to another."""
    target, found = _bound(loads)
    given = {"start_rollout_id": 7.0, "eps_clip_high": 0.3, "eval_max_context_len": 80.0, "eval_reward_key": 1.0}
    for setting in ("options given, new run", "options given, restart"):
        values = outputs_of(target, found[setting], setting, batch_of(torch.ones(1, 1, dtype=torch.bool)))
        assert {name: values[f"args.{name}"].item() for name in given} == pytest.approx(given)
    values = outputs_of(
        target, found["options not given"], "options not given", batch_of(torch.ones(1, 1, dtype=torch.bool))
    )
    stand_ins = {"eps_clip_high": 0.1, "eval_max_context_len": 64.0, "eval_reward_key": 1.0}
    assert {name: values[f"args.{name}"].item() for name in stand_ins} == pytest.approx(stand_ins)


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"START": "True"}, {"options given, new run"}),
        ({"CLIP": "True"}, {"options given, new run", "options given, restart"}),
        ({"KEY": "True"}, {"options given, new run", "options given, restart"}),
        ({"KEPT": "False"}, {"options of a file"}),
        ({"WHOLE": "True"}, {"limits not set"}),
        ({"SHORT": "args.eval_max_context_len = (args.eval_max_context_len or 1) - 1"}, {"options not given"}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    """A replaced value, a file that is not read, a default that arrives changed, and a limit that nobody set."""
    target, found = _bound(loads, **broken)
    judgements = {setting: judged_at(CFG004, one, setting, target) for setting, one in found.items()}
    assert all(judgement.tried for judgement in judgements.values())
    assert {setting for setting, judgement in judgements.items() if judgement.found is not None} == where
