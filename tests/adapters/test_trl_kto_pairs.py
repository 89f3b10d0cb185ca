"""The mismatched pairs of TRL's KTO, on a specimen of their call shapes in words of our own."""

from types import SimpleNamespace
from typing import Any

import pytest

from adapters.checks import Loads, judged_at, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_data_specimen import DATASETS, TRANSFORMERS
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.kto import takes_whole
from rl_sentinel.adapters.trl.kto_pairs import BATCHES, boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class KTOConfig:
        output_dir: str = ""
        per_device_train_batch_size: int = 8
"""

KTO = """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    class KTOTrainer:
        def __init__(self, model, ref_model, args, train_dataset, processing_class):
            size, self.batches = args.per_device_train_batch_size, []
            rows = [{name: processing_class(row[name])["input_ids"] for name in ("prompt", "completion")}
                    for row in train_dataset]
            for start in range(0, len(rows), size):
                block = rows[start : start + size]
                own = [row["completion"] for row in block]
                pairs = {"": own, "KL_": own ORDER}
                batch = {
                    f"{prefix}input_ids": pad_sequence(
                        [torch.tensor(row["prompt"] + ids) for row, ids in zip(block, found)], batch_first=True
                    )
                    for prefix, found in pairs.items()
                }
                self.batches.append(batch | {"KL_row": start})

        def _get_train_sampler(self):
            return list(range(len(self.batches)))

        def get_train_dataloader(self):
            return [self.batches[number] for number in self._get_train_sampler("data set")]
"""

SOUND = "[-1:] + own[:-1]"


def _bound(loads: Loads, order: str = SOUND) -> tuple[Target, Boundary]:
    tree = {
        "trl/__init__.py": "",
        "trl/trainer/kto_config.py": CONFIG,
        "trl/trainer/kto_trainer.py": KTO.replace(" ORDER", order),
    }
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS, "datasets.py": DATASETS})
    return target, the_only(boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("order", "broken"),
    [(SOUND, set()), ("[:]", set(BATCHES)), ("[::-1]", {"batches of three"}), ("[:1] * len(own)", set(BATCHES))],
)
def test_pairs(loads: Loads, order: str, broken: set[str]) -> None:
    """A completion's own prompt, the middle of an odd batch that is turned around, and one completion for all."""
    target, boundary = _bound(loads, order)
    found = set()
    for name in BATCHES:
        judgement = judged_at(DAT002, boundary, name, target)
        assert judgement.tried > 0
        found |= {name} if judgement.found is not None else set()
    assert found == broken


@pytest.mark.parametrize(
    ("source", "whole"),
    [
        ('batch["completion_input_ids"], batch["completion_labels"]', True),
        ('row["prompt_ids"] + row["completion_ids"]; batch["completion_labels"]', False),
        ('row["prompt_ids"] + row["completion_ids"]', False),
    ],
)
def test_rows_of_a_release(source: str, whole: bool) -> None:
    """Labels in a batch do not say that the rows of the data set are whole sequences."""
    release: Any = SimpleNamespace(source=source)
    assert takes_whole(release) == whole
