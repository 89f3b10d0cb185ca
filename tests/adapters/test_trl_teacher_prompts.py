"""The prompts of SDPO's teacher in TRL, on a specimen of their builder in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_async_specimen import files
from adapters.trl_specimen import filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, teacher_prompts
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

NAME = "teacher prompts"

MODULE = """
    import torch

    def gather_object(rows):
        return rows

    class SDPOTrainer:
        pass

    class SuccessfulRolloutTeacherContextBuilder:
        def __init__(self, trainer):
            self.trainer = trainer

        def build(self, output, prompts, rewards, feedbacks=None):
            of, each = self.trainer.accelerator, self.trainer.num_generations
            own, first = output["completion_ids"], of.process_index * len(prompts)
            scores = of.gather(rewards).tolist()
            ids = of.gather(of.pad_across_processes(own, dim=1, pad_index=0))
            asked, texts, counts = gather_object(prompts), [], []
            for row in range({start}, {start} + len(prompts)):
                group = range(row // each * each, row // each * each + each)
                good = [n for n in {among} if {other} and scores[n] >= self.trainer.args.success_reward_threshold]
                counts.append(bool(good) or {always})
                kept = ids[good[0]][ids[good[0]] != 0] if good else None
                text = "" if kept is None else self.trainer.processing_class.decode(kept, skip_special_tokens=True)
                shown = self.trainer.args.solution_template.format(successful_previous_attempt=text) if good else ""
                texts.append(asked[row] + shown)
            rows = self.trainer._tokenize_prompts_untruncated(texts)
            wide = max(map(len, rows))
            before = torch.tensor([[0] * (wide - len(row)) + row for row in rows])
            mask = torch.tensor([[0] * (wide - len(row)) + [1] * len(row) for row in rows])
            return {
                "teacher_input_ids": torch.cat([before, own], 1),
                "teacher_attention_mask": torch.cat([mask, output["completion_mask"]], 1),
                "self_distillation_mask": torch.tensor(counts).float(),
            }
"""

SOUND = {"start": "first", "among": "group", "other": "n != row", "always": "False"}

TRANSFORMERS = """
    class PreTrainedTokenizerFast:
        pad_token_id = 0

        def __init__(self, tokenizer_object, **special):
            self.words = ["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(29))]

        def __call__(self, text, add_special_tokens=True):
            return {"input_ids": [self.words.index(word) for word in text.split()]}

        def decode(self, ids, skip_special_tokens=False):
            return " ".join(self.words[one] for one in ids if one > 2 or not skip_special_tokens)

        def convert_ids_to_tokens(self, ids):
            return [self.words[one] for one in ids]
"""


def _bound(loads: Loads, **choices: str) -> tuple[Target, Boundary]:
    source = filled(MODULE, SOUND | choices)
    tree = {**files(), "trl/experimental/sdpo/sdpo_trainer.py": source}
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS})
    return target, the_only(teacher_prompts.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The number of words moves with the rewards."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ({}, False),
        ({"among": "reversed(group)"}, False),  # another successful answer
        ({"other": "True"}, True),  # the answer itself
        ({"among": "range(len(scores))"}, True),  # an answer of another group
        ({"start": "0"}, True),  # the rows of the first rank
        ({"always": "True"}, True),  # a row without an answer counts
    ],
)
def test_answers_that_the_teacher_sees(loads: Loads, choices: dict[str, str], found: bool) -> None:
    """A successful answer of the row's own group, and no other."""
    target, boundary = _bound(loads, **choices)
    check_verdict(DAT001, boundary, NAME, target, found=found)
