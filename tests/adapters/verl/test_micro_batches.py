"""How the engines of a release of verl split a batch, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads
from rl_sentinel.adapters.verl import FRAMEWORK, engine
from rl_sentinel.adapters.verl.micro_batches import splits_of_release
from rl_sentinel.core.case import Settings

SPLIT = """
    def prepare_micro_batches(data):
        return SPLITS
"""


@pytest.mark.parametrize(
    ("splits", "dynamic"), [("data.split(2)", True), ("chunks(data, 2)", False), ("undefined", False)]
)
def test_equal_micro_batches(loads: Loads, splits: str, dynamic: bool) -> None:
    """Settings ask for dynamic batches where the engine calls ``split``, which nested tensors refuse."""
    source = SPLIT.replace("SPLITS", splits)
    module = "other" if splits == "undefined" else "utils"
    target = loads(FRAMEWORK, {f"verl/workers/engine/{module}.py": source})
    settings: dict[str, Settings] = {
        "padded": {"use_dynamic_bsz": False, "ranks": 2},
        "packed": {"use_dynamic_bsz": True},
    }
    found = splits_of_release(target, settings)
    assert found == {
        "padded": {"use_dynamic_bsz": dynamic, "ranks": 2},
        "packed": {"use_dynamic_bsz": True},
    }


@pytest.mark.parametrize(("line", "claimed"), [("counts['batch_num_tokens']", True), ("len(data)", False)])
def test_denominators(loads: Loads, line: str, claimed: bool) -> None:
    """Only an engine that counts the tokens of the mini-batch gives them to the loss."""
    source = f"class FSDPEngine:\n    def forward_backward_batch(self, data, counts):\n        return {line}\n"
    target = loads(FRAMEWORK, {"verl/workers/engine/fsdp/transformer_impl.py": source})
    assert bool(engine.denominators(target).denominator) == claimed
