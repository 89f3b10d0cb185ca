"""The data sources that the managers of verl's reward loop read, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, reward_sources
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

MANAGER = """
    class NaiveRewardManager:
        def __init__(self, config, tokenizer, compute_score):
            self.config, self.tokenizer, self.compute_score = config, tokenizer, compute_score

        async def run_single(self, data):
            about, batch = data.non_tensor_batch, data.batch
            text = self.tokenizer.decode(batch["responses"][0])
            truth = about["reward_model"][0]["ground_truth"]
            return {"reward_score": self.compute_score(
                data_source=about[COLUMN][0], solution_str=text, ground_truth=truth, extra_info=about["extra_info"][0]
            )}
"""

SOUND, FIXED = 'self.config.data["reward_fn_key"]', '"data_source"'


def _bound(loads: Loads, column: str, *, offered: bool = True) -> tuple[Target, list[Boundary]]:
    tree = files() | {
        "verl/experimental/reward_loop/reward_manager/naive.py": MANAGER.replace("COLUMN", column),
        "verl/trainer/config/data/legacy_data.yaml": "reward_fn_key: data_source\n"
        if offered
        else "prompt_key: prompt\n",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, [b for b in reward_sources.boundaries(target) if isinstance(b, Boundary)]


def test_reads_back(loads: Loads) -> None:
    """Settings and arguments survive the round trip."""
    target, found = _bound(loads, SOUND)
    assert [boundary.path.rpartition(".")[2] for boundary in found] == ["run_single"]
    check_round_trips(target, found)


@pytest.mark.parametrize("column", [SOUND, FIXED])
def test_column_that_is_not_the_one_that_is_set(loads: Loads, column: str) -> None:
    """The manager reads the default column whatever is set."""
    target, (boundary,) = _bound(loads, column)
    check_verdict(CFG004, boundary, "another column", target, found=column == FIXED)


def test_releases_without_the_setting(loads: Loads) -> None:
    """Have no such boundary."""
    assert not _bound(loads, FIXED, offered=False)[1]
