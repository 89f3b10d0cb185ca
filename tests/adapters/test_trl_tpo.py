"""TRL's TPO, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import BASE, TRANSFORMERS
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, logit_metrics, preferences
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.doubled_batch_changes_mean import LAW as SPL003

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class TPOConfig:
        output_dir: str = ""
        max_length: object = 1024
        truncation_mode: str = "keep_start"
        beta: float = 0.1
        label_smoothing: float = 0.0
        loss_type: str = "sigmoid"
        tpo_alpha: float = 1.0
        tpo_l_gamma: float = 0.5
        gradient_accumulation_steps: int = 1
"""

TRAINER = """
    from collections import defaultdict

    import torch
    from torch.nn.functional import logsigmoid
    from torch.nn.utils.rnn import pad_sequence
    from trl.trainer.base import Trainer

    class Collator:
        def __init__(self, args):
            self.max_length, self.truncation_mode = args.max_length, args.truncation_mode
            self.sides = ("chosen_ids", "rejected_ids", "reference_ids")[: 3 if args.tpo_alpha else 2]

        def __call__(self, examples):
            cut = slice(None)
            if self.max_length is not None:
                kept = {"keep_start": slice(self.max_length), "keep_end": slice(-self.max_length, None)}
                cut = kept[self.truncation_mode]
            ids, masks = [], []
            for side in self.sides:
                for one in examples:
                    prompt, own = one["prompt_ids"], one[side]
                    ids.append(torch.tensor((prompt + own)[cut]))
                    masks.append(torch.tensor(([0] * len(prompt) + [1] * len(own))MASK_CUT))
            return {
                "input_ids": pad_sequence(ids, batch_first=True),
                "completion_mask": pad_sequence(masks, batch_first=True),
            }

    class TPOTrainer(Trainer):
        def __init__(self, model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class, None)
            self.data_collator = Collator(args)
            self._metrics = defaultdict(lambda: defaultdict(list))

        def log(self, logs):
            logs.update({name: sum(own) / len(own) for name, own in self._metrics["train"].items()})

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            ids, mask, args = inputs["input_ids"], inputs["completion_mask"][:, 1:], self.args
            logits = model(input_ids=ids).logits[:, :-1]
            shares, first = logits.log_softmax(-1), len(ids) // (3 if args.tpo_alpha else 2)
            self._metrics["train"]["logits/chosen"].append(logits[:first][mask[:first].bool()].LEVEL.item())
            each = shares.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2) * mask
            scores = each.sum(1)
            if args.loss_type in ("ipo", "tpo-l"):
                scores = scores / mask.sum(1)
            parts = scores.chunk(3 if args.tpo_alpha else 2)
            gap = parts[0] - parts[1]
            self._metrics["train"]["rewards/chosen"].append(args.beta * parts[0].mean().item())
            spread = -(shares.exp() * shares).sum(2)
            self._metrics["train"]["entropy"].append(spread[ENTROPY_WHERE].mean().item())
            if args.loss_type == "ipo":
                return ((gap - 1 / (2 * args.beta)) ** 2).mean()
            gap = args.beta * gap - (args.tpo_l_gamma if args.loss_type == "tpo-l" else 0.0)
            loss = -((1 - args.label_smoothing) * logsigmoid(gap) + args.label_smoothing * logsigmoid(-gap)).mean()
            if args.tpo_alpha:
                loss = loss - args.tpo_alpha * each.chunk(3)[2].sum() / COUNT
            return loss  # "sigmoid"
"""

COUNT = "mask.chunk(3)[2].sum()"


def _bound(
    loads: Loads, count: str = COUNT, mask_cut: str = "[cut]", where: str = "mask.bool()", level: str = "mean()"
) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    files = {
        "trl/__init__.py": "",
        "trl/trainer/base.py": BASE,
        "trl/experimental/tpo/tpo_config.py": CONFIG,
        "trl/experimental/tpo/tpo_trainer.py": TRAINER.replace("COUNT", count)
        .replace("MASK_CUT", mask_cut)
        .replace("ENTROPY_WHERE", where)
        .replace("LEVEL", level),
    }
    target = loads(FRAMEWORK, files, {**overlay(), "transformers.py": TRANSFORMERS})
    every = [*preferences.boundaries(target), *logit_metrics.boundaries(target)]
    made = [one for one in every if isinstance(one, Boundary)]
    return target, {(one.path, setting): one for one in made for setting in one.settings}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    settings = [setting for _, setting in boundaries]
    losses = ["default", "smoothed", "smoothed, keep_start", "smoothed, keep_end", "ipo", "tpo-l"]
    assert settings == [*losses, "logged logits", "logged of logits"]
    check_calls(target, boundaries.values())


CASES = [
    ("default", {"count": "mask.sum()"}),
    ("smoothed, keep_end", {"mask_cut": "[: len(ids[-1])]"}),
    ("logged of logits", {"where": "mask >= 0"}),
]


@pytest.mark.parametrize(("setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """The third response counted with all tokens, a mask cut at another end than the tokens, entropy of all tokens."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    (boundary,) = (b for (_, name), b in boundaries.items() if name == setting)
    check_verdict(REF001, boundary, setting, target, found=found)


@pytest.mark.parametrize(("level", "found"), [("mean()", False), ("mean(-1).sum()", True)])
def test_mean_logit_of_repeated_rows(loads: Loads, level: str, found: bool) -> None:
    """A sum over tokens, logged as their mean, grows with the batch."""
    target, boundaries = _bound(loads, level=level)
    (boundary,) = (b for (_, name), b in boundaries.items() if name == "logged logits")
    check_verdict(SPL003, boundary, "logged logits", target, found=found)
