"""The merge of a trajectory's steps, on a specimen of SkyRL's call shape in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, step_merging
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

BASE = """
    from dataclasses import dataclass

    @dataclass
    class TrajectoryID:
        instance_id: str
        repetition_id: int
"""

UTILS = """
    COLUMNS = {"response_ids": None, "loss_masks": TRAINED, "rollout_logprobs": 0.0, "rewards": 0.0}

    def merge_stepwise_output(generator_output):
        merged = {name: [] for name in (*COLUMNS, "prompt_token_ids", "trajectory_ids", "is_last_step")}
        for step, prompt in enumerate(generator_output["prompt_token_ids"]):
            held = [] if not step else merged["prompt_token_ids"][-1] + merged["response_ids"][-1]
            same = step and generator_output["trajectory_ids"][step] == merged["trajectory_ids"][-1]
            if same and prompt[: len(held)] == held:
                for name, fill in COLUMNS.items():
                    between = prompt[len(held) :]
                    merged[name][-1] += between if fill is None else [fill] * len(between)
                    merged[name][-1] += generator_output[name][step]
                    if name == "rewards" and LAST_ONLY:
                        merged[name][-1][: -len(generator_output[name][step])] = [0.0] * len(held)
                continue
            for name in merged:
                value = generator_output[name][step]
                merged[name].append(list(value) if isinstance(value, list) else value)
        return merged
"""


def _bound(loads: Loads, trained: str = "0", last_only: str = "False") -> tuple[Target, dict[str, Boundary]]:
    files = {
        "skyrl/train/generators/base.py": BASE,
        "skyrl/train/generators/utils.py": UTILS.replace("TRAINED", trained).replace("LAST_ONLY", last_only),
    }
    target = loads(FRAMEWORK, files)
    return target, by_setting(step_merging.boundaries(target))


@pytest.mark.parametrize("setting", ["prompts extend", "every other prompt rewritten"])
def test_by_hand(loads: Loads, setting: str) -> None:
    """Two steps of one trajectory and one of another."""
    target, bound = _bound(loads)
    columns = {
        "trajectory": torch.tensor([0, 0, 1]),
        "last_step": torch.tensor([False, True, True]),
        "token": torch.tensor([[3, 4], [5, 6], [7, 0]]),
        "length": torch.tensor([2, 2, 1]),
        "reward": torch.tensor([0.25, 1.0, 0.5]),
        "rollout_logprob": torch.tensor([[-1.0, -2.0], [-3.0, -4.0], [-5.0, 0.0]]),
    }
    mask = torch.tensor([[True, True], [False, True], [True, False]])
    outputs = outputs_of(target, bound[setting], setting, batch_of(mask, **columns))
    assert outputs["mask"].tolist() == mask.tolist()
    assert {name: outputs[name].tolist() for name in ("token", "reward", "rollout_logprob")} == {
        name: columns[name].tolist() for name in ("token", "reward", "rollout_logprob")
    }


@pytest.mark.parametrize("broken", [{"trained": "1"}, {"last_only": "True"}])
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], found: bool) -> None:
    """An observation that is trained, and a reward of an earlier step that is lost."""
    target, bound = _bound(loads, **(broken if found else {}))
    check_verdict(PLC004, bound["prompts extend"], "prompts extend", target, found=found)


def test_round_trip(loads: Loads) -> None:
    target, bound = _bound(loads)
    check_round_trip(target, bound["prompts extend"])
