"""TRL's rows of a few tokens under limits by default, on a specimen of our own with a mark for "not set"."""

import pytest

from adapters.checks import Loads, by_setting, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_data_specimen import DATASETS, TRANSFORMERS
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.default_limits import boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

NAME = "short rows, limits by default"

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class DPOConfig:
        output_dir: str = ""
        max_prompt_length: object = {asked}
        max_completion_length: object = {answered}

        def __post_init__(self):
            {after}
"""

TRAINER = """
    class DPOTrainer:
        data_collator = None

        def __init__(self, model, ref_model, args, train_dataset, processing_class):
            self.args, self.processing_class = args, processing_class
            self.train_dataset = [self.tokenize_row(row) for row in train_dataset]

        def tokenize_row(self, row):
            encode, end = self.processing_class, [self.processing_class.eos_token_id]
            asked, most = self.args.max_prompt_length, self.args.max_completion_length
            prompt = encode(row["prompt"])["input_ids"]
            sides = {side: (encode(row[side])["input_ids"] + end)[:most] for side in ("chosen", "rejected")}
            prompt = prompt if asked is None else prompt[-asked:]
            return {"prompt_input_ids": prompt, **{f"{side}_input_ids": ids for side, ids in sides.items()}}
"""

OFF = "self.max_completion_length = None"


def _load(loads: Loads, asked: object, answered: object, after: str) -> tuple[Target, dict[str, Boundary]]:
    config = CONFIG.replace("{asked}", repr(asked)).replace("{answered}", repr(answered)).replace("{after}", after)
    tree = {"trl/__init__.py": "", "trl/trainer/dpo_config.py": config, "trl/trainer/dpo_trainer.py": TRAINER}
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS, "datasets.py": DATASETS})
    return target, by_setting(boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The boundary answers, and every column survives the round trip."""
    target, bound = _load(loads, 128, None, "pass")
    check_calls(target, bound.values())


@pytest.mark.parametrize(
    ("asked", "answered", "after", "broken"),
    [
        (128, None, "pass", False),
        (128, -1, OFF, False),
        (128, -1, "pass", True),  # a mark for "not set" that stays, and cuts
        (1, None, "pass", True),
    ],
)
def test_short_rows(loads: Loads, asked: object, answered: object, after: str, broken: bool) -> None:
    """Rows of a few tokens are whole."""
    target, bound = _load(loads, asked, answered, after)
    judgement = judged_at(TOK001, bound[NAME], NAME, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is broken


def test_without_a_default_limit(loads: Loads) -> None:
    """A configuration whose limits are all off by default has nothing to check."""
    _, bound = _load(loads, None, None, "pass")
    assert not bound
