"""TRL's supervised fine-tuning before 0.15, on a specimen of how it prepared texts in words of our own."""

import pytest

from adapters.checks import Loads, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_data_specimen import TRANSFORMERS
from adapters.trl_specimen import filled, overlay
from rl_sentinel.adapters.trl import FRAMEWORK, early_supervised
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class SFTConfig:
        output_dir: str = ""
        dataset_text_field: object = None
        packing: bool = False
        max_seq_length: object = None
"""

TRAINER = """
    from trl.extras.dataset_formatting import get_formatting_func_from_dataset

    class ConstantLengthDataset:
        def __init__(self, tokenizer, rows, field, size):
            self.tokenizer, self.rows, self.field, self.size = tokenizer, rows, field, size

        def __iter__(self):
            ids = []
            for row in self.rows:
                ids += self.tokenizer(row[self.field])["input_ids"] + {end}
            for start in range(0, len(ids) - self.size + 1, self.size):
                yield {"input_ids": ids[start : start + self.size]}

    class SFTTrainer:
        def __init__(self, model, args, train_dataset, tokenizer):
            self.tokenizer, self.args = tokenizer, args
            if args.packing:
                packs = ConstantLengthDataset(tokenizer, train_dataset, args.dataset_text_field, args.max_seq_length)
                self.train_dataset = packs
                return
            self.train_dataset = self._prepare_non_packed_dataloader(train_dataset, args.dataset_text_field)

        def _prepare_non_packed_dataloader(self, dataset, field):
            formats = None if field else get_formatting_func_from_dataset(dataset, self.tokenizer)
            texts = [formats(row) if formats else row[field] for row in dataset]
            rows = [self.tokenizer(text, add_special_tokens={special})["input_ids"] for text in texts]
            most = self.args.max_seq_length or 1024
            return [{"input_ids": row{cut}} for row in rows if {whole}]
"""

FORMATS = """
    FORMAT_MAPPING = {"chatml": "a list of earlier releases"}

    def get_formatting_func_from_dataset(dataset, tokenizer):
        assert dataset.features["messages"] == FORMAT_MAPPING["chatml"]
        return lambda row: tokenizer.apply_chat_template(row["messages"], tokenize=False)
"""

DATASETS = """
    class Dataset(list):
        features = {"messages": "a list"}
        from_list = classmethod(lambda cls, rows: cls(rows))
"""

SOUND = {"end": "[self.tokenizer.eos_token_id]", "special": "formats is None", "whole": "True", "cut": "[:most]"}


def _broken(loads: Loads, **choices: str) -> set[str]:
    """The settings at which the law finds a fault."""
    parts = SOUND | choices
    tree = {
        "trl/__init__.py": "",
        "trl/extras/__init__.py": "",
        "trl/extras/dataset_formatting.py": FORMATS,
        "trl/trainer/sft_config.py": CONFIG,
        "trl/trainer/sft_trainer.py": filled(TRAINER, parts),
    }
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS, "datasets.py": DATASETS})
    made = [one for one in early_supervised.boundaries(target) if isinstance(one, Boundary)]
    boundaries = {next(iter(one.settings)): one for one in made}
    assert set(boundaries) == set(early_supervised.FORMS)
    check_calls(target, made)
    judged = {name: judged_at(TOK001, one, name, target) for name, one in boundaries.items()}
    assert all(judgement.tried > 0 for judgement in judged.values())
    return {name for name, judgement in judged.items() if judgement.found is not None}


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ({}, set()),
        ({"special": "True"}, {"conversations in a column"}),  # the template has the token that starts a text
        ({"special": "False"}, {"texts of a field", "texts over a limit"}),
        ({"whole": "len(row) > 3"}, {"texts of a field", "texts over a limit"}),  # conversations are longer
        ({"whole": "len(row) <= most"}, {"texts over a limit"}),
        ({"cut": "[-most:]"}, {"texts over a limit"}),
        ({"end": "[]"}, {"packed texts"}),
        ({"end": "[self.tokenizer.eos_token_id] * 2"}, {"packed texts"}),
    ],
)
def test_tokens_of_texts(loads: Loads, choices: dict[str, str], found: set[str]) -> None:
    """Every text is a row with the token that starts it once, and packed texts have an end token between them."""
    assert _broken(loads, **choices) == found
