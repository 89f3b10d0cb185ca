"""The positions of prompts with images in verl's data set, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, prompt_positions
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

SHARED = """
    import torch
    from torch.nn.functional import pad

    def padded(ids, width):
        ids = torch.tensor(ids)
        missing = width - len(ids)
        return pad(ids, (missing, 0)), pad(torch.ones_like(ids), (missing, 0))

    def positions(processor, ids, mask, grid):
        from verl.models.transformers.qwen2_vl import get_rope_index

        own = get_rope_index(processor, input_ids=ids, image_grid_thw=grid, attention_mask=mask)
        text = (mask.cumsum(0) - 1).clamp(min=0)
        return GIVEN
"""

EARLY = """
    import pandas as pd

    from .shared import padded, positions

    def process_image(image):
        raise RuntimeError("there is no file")

    class RLHFDataset:
        def __init__(self, files, tokenizer, processor=None, image_key="images", max_prompt_length=16):
            self.tokenizer, self.processor, self.image_key = tokenizer, processor, image_key
            self.width, self.rows = max_prompt_length, pd.concat([pd.read_parquet(file) for file in files])

        def __getitem__(self, item):
            row = self.rows.iloc[item].to_dict()
            text = self.tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
            images = [process_image(image) for image in row[self.image_key]]
            grid = self.processor.image_processor(images)["image_grid_thw"]
            text = text.replace("<image>", self.processor.image_token * int(grid[0].prod()))
            ids, mask = padded(self.tokenizer(text)["input_ids"], self.width)
            get_rope_index = positions
            where = get_rope_index(self.processor, ids, mask, grid)
            return {"input_ids": ids, "attention_mask": mask, "position_ids": where}
"""

LATER = """
    import datasets

    from .shared import padded, positions

    class RLHFDataset:
        def __init__(self, files, tokenizer, config, processor=None):
            self.processor, self.image_key, self.width = processor, "images", config["max_prompt_length"]
            self.rows = datasets.concatenate_datasets([datasets.load_dataset(file)["train"] for file in files])

        def __getitem__(self, item):
            row = self.rows[item]
            text = self.processor.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
            ids = self.processor(text=[text], images=row[self.image_key], return_tensors="pt")["input_ids"][0]
            ids, mask = padded(ids.tolist(), self.width)
            get_rope_index = positions
            return {"input_ids": ids, "attention_mask": mask, "position_ids": get_rope_index(None, ids, mask, None)}
"""

ALL = "torch.cat([text.unsqueeze(0), own])"
NAME = "positions of prompts with images"


def _bound(loads: Loads, dataset: str, given: str = ALL) -> tuple[Target, Boundary]:
    folder = "verl/utils/dataset"
    tree = {
        f"{folder}/rl_dataset.py": dataset,
        f"{folder}/shared.py": rewritten(SHARED, {"GIVEN": given}),
        f"{folder}/__init__.py": "",
        "verl/models/transformers/__init__.py": "",
        "verl/models/transformers/qwen2_vl.py": "raise ImportError('transformers is not installed')",
    }
    packages = {"pandas/__init__.py": "concat = None", "datasets/__init__.py": "load_dataset = None"}
    target = loads(FRAMEWORK, tree, packages)
    return target, the_only(prompt_positions.boundaries(target))


@pytest.mark.parametrize("dataset", [EARLY, LATER])
def test_answers_and_reads_back(loads: Loads, dataset: str) -> None:
    """Data frames and tables of datasets."""
    target, boundary = _bound(loads, dataset)
    check_calls(target, [boundary])


@pytest.mark.parametrize("dataset", [EARLY, LATER])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        (ALL, False),
        ("own", False),
        ("text", True),  # as of prompts without images
        ("own[0]", True),  # one axis for all
        ("own.flip(0)", True),
        ("own.roll(1, dims=1)", True),
    ],
)
def test_positions_on_each_axis(loads: Loads, dataset: str, given: str, found: bool) -> None:
    """Positions of the text, of one axis, of other axes, and of other tokens."""
    target, boundary = _bound(loads, dataset, given)
    check_verdict(DAT001, boundary, NAME, target, found=found)


def test_data_sets_without_positions(loads: Loads) -> None:
    """A data set that returns messages has no boundary here."""
    source = LATER.replace("get_rope_index", "other")
    tree = {"verl/utils/dataset/rl_dataset.py": source, "verl/utils/dataset/shared.py": SHARED}
    target = loads(FRAMEWORK, tree, {"datasets/__init__.py": "load_dataset = None"})
    assert list(prompt_positions.boundaries(target)) == []
