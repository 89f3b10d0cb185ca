"""TRL's rows over a length limit, on a specimen of our own: joined rows, separate columns and a collator that cuts."""

import pytest

from adapters.checks import Loads, by_setting, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_data_specimen import DATASETS, TRANSFORMERS
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.truncated_rows import boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.conversation_tokens_differ import LAW as TOK001

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class DPOConfig:
        output_dir: str = ""
        max_length: int = 512
        {fields}
"""

#: A release that joins prompt and completion: the prompt is cut first, then the completion.
JOINED = """
    class DPOTrainer:
        data_collator = None

        def __init__(self, model, ref_model, args, train_dataset, processing_class):
            self.args, self.processing_class = args, processing_class
            self.train_dataset = [self.tokenize_row(row) for row in train_dataset]

        def tokenize_row(self, row):
            asked = self.args.max_prompt_length
            found = {}
            for side in ("chosen", "rejected"):
                prompt, own = (self.processing_class(row[name])["input_ids"] for name in ("prompt", side))
                own = own + [self.processing_class.eos_token_id]
                if len(prompt) + len(own) > self.args.max_length:
                    ends = {"keep_start": prompt[:asked], "keep_end": prompt[-asked:]}
                    prompt = ends[{mode}]
                own = own[: self.args.max_length - {room}]
                found[f"{side}_input_ids"] = prompt + own
                found[f"{side}_labels"] = [-100] * len(prompt) + own
            return found
"""

#: A release whose collator joins and cuts; rows whose prompt alone fills the limit are left out.
COLLATED = """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    class Collator:
        def __init__(self, max_length):
            self.max_length = max_length

        def __call__(self, examples):
            sides = [(one["prompt_ids"], one[f"{side}_ids"]) for side in ("chosen", "rejected") for one in examples]
            ids = [(p + c)[: self.max_length] for p, c in sides]
            masks = [([0] * len(p) + [1] * len(c)){cut} for p, c in sides]
            rows = {"input_ids": ids, "completion_mask": masks, "attention_mask": [[1] * len(own) for own in ids]}
            return {n: pad_sequence([torch.tensor(x) for x in own], batch_first=True) for n, own in rows.items()}

    class DPOTrainer:
        def __init__(self, model, ref_model, args, train_dataset, processing_class):
            names, encode = ("prompt", "chosen", "rejected"), processing_class
            rows = [{f"{name}_ids": encode(row[name])["input_ids"] for name in names} for row in train_dataset]
            self.processing_class, self.data_collator = processing_class, Collator(args.max_length)
            self.train_dataset = [row for row in rows if {keeps}]
"""

#: A release that limits prompts and completions apart, and joins them in its forward pass.
APART = """
    class DPOTrainer:
        data_collator = None

        def __init__(self, model, ref_model, args, train_dataset, processing_class):
            self.args, self.processing_class = args, processing_class
            self.train_dataset = [self.tokenize_row(row, args.max_completion_length) for row in train_dataset]

        def tokenize_row(self, row, max_completion_length):
            names = ("prompt", "chosen", "rejected")
            prompt, *sides = (self.processing_class(row[name])["input_ids"] for name in names)
            if max_completion_length is not None:
                sides = [own[:max_completion_length]{end} for own in sides]
            return dict(zip((f"{name}_input_ids" for name in names), [prompt[-self.args.max_prompt_length :], *sides]))
"""

PROMPT, BOTH = "max_prompt_length: int = 128", "truncation_mode: str = 'keep_end'"
SEVERAL, ENDS = f"{PROMPT}; {BOTH}", ("keep_start", "keep_end")
OPTIONAL = f"{PROMPT}; max_completion_length: object = None"


def _load(loads: Loads, trainer: str, fields: str) -> tuple[Target, dict[str, Boundary]]:
    tree = {
        "trl/__init__.py": "",
        "trl/trainer/dpo_config.py": CONFIG.replace("{fields}", fields.replace("; ", "\n        ")),
        "trl/trainer/dpo_trainer.py": trainer,
    }
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS, "datasets.py": DATASETS})
    return target, by_setting(boundaries(target))


def _broken(target: Target, bound: dict[str, Boundary]) -> set[str]:
    """The settings under which the law does not hold."""
    broken = set()
    for name, boundary in bound.items():
        judgement = judged_at(TOK001, boundary, name, target)
        assert judgement.tried > 0
        broken |= {name} if judgement.found is not None else set()
    return broken


def _joined(mode: str = "self.args.truncation_mode", room: str = "len(prompt)") -> str:
    return JOINED.replace("{mode}", mode).replace("{room}", room)


def _collated(cut: str = "[: self.max_length]", keeps: str = 'len(row["prompt_ids"]) < args.max_length') -> str:
    return COLLATED.replace("{cut}", cut).replace("{keeps}", keeps)


@pytest.mark.parametrize(
    ("trainer", "fields"),
    [(_joined(), SEVERAL), (_collated(), "pass"), (APART.replace("{end}", ""), OPTIONAL)],
)
def test_answers_and_reads_back(loads: Loads, trainer: str, fields: str) -> None:
    """Each form binds, and every column survives the round trip."""
    target, bound = _load(loads, trainer, fields)
    check_calls(target, bound.values())


@pytest.mark.parametrize(
    ("trainer", "broken"),
    [
        (_joined(), set()),
        (_joined(mode="'keep_start'"), {"long prompts, keep_end"}),
        (_joined(room="2"), {"long rows, keep_start", "long rows, keep_end"}),
    ],
)
def test_joined_rows(loads: Loads, trainer: str, broken: set[str]) -> None:
    """The end of the prompt that is kept is that of the setting, and the whole row is within the limit."""
    target, bound = _load(loads, trainer, SEVERAL)
    assert set(bound) == {f"{name}, {mode}" for name in ("long rows", "long prompts") for mode in ENDS}
    assert _broken(target, bound) == broken


@pytest.mark.parametrize(
    ("trainer", "broken"),
    [
        (_collated(), set()),
        (_collated(keeps="True"), {"prompts that fill the limit"}),
    ],
)
def test_rows_of_a_collator(loads: Loads, trainer: str, broken: set[str]) -> None:
    """A row without any token of its completion left does not train."""
    target, bound = _load(loads, trainer, "pass")
    assert set(bound) == {"long rows", "prompts that fill the limit"}
    assert _broken(target, bound) == broken


@pytest.mark.parametrize(("end", "sound"), [("", True), ("[-1:]", False)])
def test_completions_apart(loads: Loads, end: str, sound: bool) -> None:
    """A long completion keeps its start."""
    target, bound = _load(loads, APART.replace("{end}", end), OPTIONAL)
    assert ("long completions" in _broken(target, bound)) is not sound
