"""SkyRL's method that normalizes advantages, with mini-batches by boundaries and, in older releases, by their size."""

import pytest

from adapters.checks import Loads, bound, check_verdict
from adapters.test_skyrl import _files
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001

METHOD = """
        def _normalize_advantages(self, data, MINI_BATCHES):
            mask, first = data["response_mask"], FIRST
            assert self.cfg.trainer.algorithm.advantage_batch_normalize and first == len(mask)
            mean = (data["advantages"] * mask).sum() / COUNT
            data["advantages"] = (data["advantages"] - mean) * mask
            return data
"""

#: Parameter of the mini-batches -> the number of rows of the first one.
SIGNATURES = {
    "mini_batch_boundaries, prompt_boundaries=None": "mini_batch_boundaries[0][1]",
    "mini_batch_size": "mini_batch_size",
}


@pytest.mark.parametrize("parameters", SIGNATURES)
@pytest.mark.parametrize(("count", "found"), [("mask.sum()", False), ("mask.numel()", True)])
def test_a_mean_over_padding(loads: Loads, parameters: str, count: str, found: bool) -> None:
    tree = _files(fixed=True)
    utils, trainer = "skyrl/backends/skyrl_train/utils/ppo_utils.py", "skyrl/train/trainer.py"
    tree[utils] = tree[utils].replace("def normalize_advantages_dict", "def unused")
    method = METHOD.replace("MINI_BATCHES", parameters).replace("FIRST", SIGNATURES[parameters])
    tree[trainer] += method.replace("COUNT", count)
    target = loads(FRAMEWORK, tree)
    check_verdict(PAD001, bound(FRAMEWORK, target)["_normalize_advantages", "default"], "default", target, found=found)
