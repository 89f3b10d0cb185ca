"""verl's data sets of one turn, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, judged_at, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, single_turn
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

PROMPTS = """
    import torch
    import datasets
    from PIL import Image

    class RLHFDataset:
        def __init__(self, data_files, tokenizer, config, processor=None):
            self.sees, self.image_key = processor, config.get("image_key", "images")
            self.of, self.limit, self.way = tokenizer, config["max_prompt_length"], config["truncation"]
            self.options = config["apply_chat_template_kwargs"]
            rows = datasets.concatenate_datasets([datasets.load_dataset("parquet", data_files=data_files[0])["train"]])
            if config["filter_overlong_prompts"]:
                rows = rows.filter(lambda row: self.count(row) <= self.limit)
            self.rows = rows

        def count(self, row):
            text = self.text(row, FILTER_OPTIONS)
            if self.sees is None:
                return len(self.of(text)["input_ids"])
            from verl.utils.dataset.vision_utils import process_image
            assert not any(isinstance(image, Image.Image) for image in row[self.image_key])
            images = [process_image(image) for image in IMAGES]
            return len(self.sees(text=[text], images=images or None)["input_ids"][0])

        def text(self, row, options):
            return self.of.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True, **options)

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, place):
            row = self.rows[place]
            ids = self.of(self.text(row, self.options), return_tensors="pt")["input_ids"][0]
            half = self.limit // 2
            if len(ids) > self.limit:
                ids = {"error": ids, "left": ids[-self.limit :], "right": ids[: self.limit], "middle": MIDDLE}[self.way]
            room = max(0, self.limit - len(ids))
            real = torch.cat([torch.zeros(room), torch.ones(len(ids))]).long()
            return {
                "input_ids": torch.cat([torch.full((room,), self.of.pad_token_id), ids]),
                "attention_mask": real,
                "position_ids": POSITIONS,
                "raw_prompt_ids": ids.tolist(),
                "index": row["extra_info"]["index"],
            }
"""

REPLIES = """
    import pandas as pd
    import torch

    class SFTDataset:
        def __init__(self, parquet_files, tokenizer, config):
            self.of, self.width = tokenizer, config["max_length"]
            rows = pd.concat([pd.read_parquet(parquet_files[0])])
            self.prompts, self.replies = rows[["prompt"]].tolist(), rows[["response"]].tolist()

        def __getitem__(self, place):
            turn = [{"role": "user", "content": self.prompts[place]}]
            asked = self.of.apply_chat_template(turn, add_generation_prompt=True)
            ids = asked + self.of(self.replies[place] + self.of.eos_token)["input_ids"]
            mask = [int(SCORED) for n in range(len(ids))]
            fill = lambda row: torch.tensor(row + [0] * (self.width - len(row)))
            return {
                "input_ids": fill(ids),
                "attention_mask": fill([1] * len(ids)),
                "position_ids": fill(list(range(len(ids)))),
                "loss_mask": fill(mask),
            }
"""

PAIRS = """
    import pandas as pd
    import torch

    class RMDataset:
        def __init__(self, parquet_files, tokenizer, max_length=8):
            self.of, self.width, self.rows = tokenizer, max_length, pd.read_parquet(parquet_files[0])

        def __getitem__(self, place):
            found = {"input_ids": [], "attention_mask": []}
            for side in ("chosen", "rejected"):
                words = [self.rows[name].tolist()[place] for name in ("prompt", side)]
                ids = [token for text in words for token in self.of(text)["input_ids"]] + [self.of.eos_token_id]
                found["input_ids"].append(ids + [0] * (self.width - len(ids)))
                found["attention_mask"].append([1] * len(ids) + [PADDED] * (self.width - len(ids)))
            return {name: torch.tensor(rows) for name, rows in found.items()}
"""

SOUND = {
    "FILTER_OPTIONS": "self.options",
    "IMAGES": "row[self.image_key]",
    "MIDDLE": "torch.cat([ids[:half], ids[half - self.limit :]])",
    "POSITIONS": "(real.cumsum(0) - 1).clamp(min=0)",
    "SCORED": "len(asked) - 1 <= n < len(ids) - 1",
    "PADDED": "0",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    tree = files() | {"verl/utils/dataset/vision_utils.py": "raise ImportError('no package for images')"}
    for path, source in (("rl_dataset", PROMPTS), ("sft_dataset", REPLIES), ("rm_dataset", PAIRS)):
        text = rewritten(source, SOUND | broken)
        # The real module tells by this name that it has a way to cut.
        tree[f"verl/utils/dataset/{path}.py"] = text.replace(
            "def text(", "apply_chat_template_kwargs = {}\n\n        def text("
        )
    empty = {"datasets.py": "", "pandas.py": ""}
    target = loads(FRAMEWORK, tree, empty)
    made = [one for one in single_turn.boundaries(target) if isinstance(one, Boundary)]
    return target, {f"{one.path.split('.')[-2]}, {next(iter(one.settings))}": one for one in made}


def _broken(loads: Loads, law: Law, **broken: str) -> set[str]:
    """The boundaries at which the law finds something."""
    target, boundaries = _bound(loads, **broken)
    found = set()
    for name, boundary in boundaries.items():
        if law.applies(boundary):
            continue
        judgement = judged_at(law, boundary, next(iter(boundary.settings)), target)
        assert judgement.tried > 0
        if judgement.found is not None:
            found.add(name)
    return found


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    prompts = {f"RLHFDataset, {name}" for name in single_turn.PROMPT_FAMILIES}
    assert set(boundaries) == prompts | {"SFTDataset, default", "RMDataset, default"}
    check_calls(target, boundaries.values())


def test_sound(loads: Loads) -> None:
    assert _broken(loads, TOK001) == _broken(loads, DAT002) == set()


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({"MIDDLE": "torch.cat([ids[:half], ids[-half:]])"}, {"RLHFDataset, cut in the middle"}),
        ({"SCORED": "n >= len(asked)"}, {"SFTDataset, default"}),
        ({"SCORED": "n >= len(asked) - 1"}, set()),  # nothing follows the last token
        ({"PADDED": "1"}, {"RMDataset, default"}),
        (
            {"POSITIONS": "torch.arange(self.limit)"},
            {f"RLHFDataset, {name}" for name, one in single_turn.PROMPT_FAMILIES.items() if "images" not in one},
        ),
    ],
)
def test_tokens_and_masks(loads: Loads, broken: dict[str, str], found: set[str]) -> None:
    assert _broken(loads, TOK001, **broken) == found


def test_filter_that_counts_no_tokens_of_images(loads: Loads) -> None:
    assert _broken(loads, DAT002, IMAGES="()") == {"RLHFDataset, long prompts filtered, images"}


def test_filter_without_the_options_of_the_template(loads: Loads) -> None:
    """The system message that the template adds counts too."""
    assert _broken(loads, DAT002, FILTER_OPTIONS="{}") == {"RLHFDataset, long prompts filtered, template options"}
