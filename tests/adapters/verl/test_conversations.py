"""verl's data set of conversations, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, bound, check_verdict, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

DATASET = """
    import torch
    import pandas as pd

    def copy_local_path_from_hdfs(path, verbose=True):
        raise RuntimeError("a file is asked for")

    class MultiTurnSFTDataset:
        def __init__(self, parquet_files, tokenizer, config, **about):
            self.tokenizer, self.config = tokenizer, config
            frame = pd.concat([pd.read_parquet(copy_local_path_from_hdfs(parquet_files))])
            self.options = config.get("apply_chat_template_kwargs", {})
            self.rows = frame["messages"].apply(list).tolist()

        def text(self, messages, **options):
            return self.tokenizer.apply_chat_template(messages, tokenize=True, **options)

        def __getitem__(self, item):
            ids, mask = [], []
            empty = {"role": "user", "content": ""}
            one, two = self.text([empty], **self.options), self.text([empty] * 2, **self.options)
            system = len(one) - (len(two) - len(one))
            header = len(self.text([empty], add_generation_prompt=True, **self.options)) - len(one)
            for number, message in enumerate(self.rows[item]):
                own = self.text([message], OPTIONS)[system if number else 0 :]
                trains = message["role"] == "assistant"
                ids += own
                mask += [int(trains and place >= HEADER) for place in range(len(own))]
            ids, mask, limit = torch.tensor(ids), torch.tensor(mask), self.config["max_length"]
            places = torch.arange(len(ids))
            if len(ids) > limit:
                side = slice(-limit, None) if self.config["truncation"] == LEFT else slice(0, limit)
                ids, mask, places = ids[side], mask[CUT], places[side]
            row = {"input_ids": ids, "loss_mask": mask, "position_ids": places}
            if self.config["pad_mode"] == "right":
                row["attention_mask"] = torch.ones_like(ids)
                gap = (0, limit - len(ids))
                filled = {"loss_mask": FILL}
                row = {n: torch.nn.functional.pad(x, gap, value=filled.get(n, 0)) for n, x in row.items()}
            return row
"""

SOUND = {
    "OPTIONS": "**self.options",
    "HEADER": "header",
    "LEFT": '"left"',
    "CUT": "side",
    "FILL": "0",
}


def _load(loads: Loads, **broken: str) -> Target:
    source = rewritten(DATASET, SOUND | broken)
    return loads(FRAMEWORK, files() | {"verl/utils/dataset/multiturn_sft_dataset.py": source})


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip."""
    target = _load(loads)
    mine = [b for (_, _), b in bound(FRAMEWORK, target).items() if "MultiTurnSFTDataset" in b.path]
    assert len(mine) == 5
    check_round_trips(target, mine)


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("users", {"HEADER": "0"}),
        ("users", {"HEADER": "header + 1"}),
        ("users", {"FILL": "1"}),
        ("system in the template's options", {"OPTIONS": ""}),
        ("limit, cut at the right", {"CUT": "slice(-limit, None)"}),
        ("limit, cut at the left", {"CUT": "slice(0, limit)"}),
        ("limit, cut at the left, unpadded", {"LEFT": '"right"'}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_tokens_and_mask(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Header trained, first word not trained, padding trained, template options, mask and tokens cut differently."""
    target = _load(loads, **(broken if found else {}))
    check_verdict(TOK001, bound(FRAMEWORK, target)["__getitem__", setting], setting, target, found=found)
