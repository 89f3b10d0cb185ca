"""The completions table of TRL's distillation, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import files, filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, distillation_table
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

TRAINER = """
    from collections import defaultdict, deque
    from types import SimpleNamespace

    import torch

    def gather_object(objects):
        return objects

    class Frame:
        def __init__(self, columns):
            self.columns = columns

        def to_dict(self, orient):
            return [dict(zip(self.columns, row)) for row in zip(*self.columns.values())]

    class DistillationTrainer:
        def __init__(self, model, teacher_model, args, train_dataset, processing_class):
            self.model, self.args, self.state, self.accelerator = model, args, SimpleNamespace(), SimpleNamespace()
            self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
            self._logs, self.control = {"prompt": deque(), "completion": deque()}, SimpleNamespace()

        def _generate(self, prompts):
            raise RuntimeError("an engine runs here")

        def _generate_and_score_completions(self, inputs):
            prompt_ids, completion_ids, tool_mask = self._generate([row["prompt"] for row in inputs])
            texts = [[" ".join(f"w{n - 3}" for n in ids) for ids in side] for side in (prompt_ids, completion_ids)]
            self._logs["prompt"].extend({gathers}(texts[0]))
            self._logs["completion"].extend(gather_object([text{cut} for text in texts[1]]))
            return {"prompt_ids": prompt_ids}

        def compute_loss(self, model, inputs):
            return self.model(inputs)

        def log(self, logs, start_time=None):
            if self.accelerator.is_main_process and self.log_completions and "wandb" in self.args.report_to:
                prompts, completions = list(self._logs["prompt"]), list(self._logs["completion"])
                table = {"step": [{step}] * len(prompts), "prompt": {first}, "completion": completions}
                wandb.log({"completions": wandb.Table(dataframe=Frame(table))})
"""

SOUND = {"gathers": "gather_object", "cut": "", "step": "self.state.global_step", "first": "prompts"}


def _bound(loads: Loads, **choices: str) -> tuple[Target, Boundary]:
    tree = files()
    tree["trl/trainer/distillation_config.py"] = tree["trl/trainer/grpo_config.py"].replace("GRPO", "Distillation")
    tree["trl/trainer/distillation_trainer.py"] = filled(TRAINER, SOUND | choices)
    target = loads(FRAMEWORK, tree, overlay())
    return target, the_only(distillation_table.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"first": "prompts[::-1]"}, True),
        ({"first": "completions"}, True),
        ({"step": "self.state.global_step + 1"}, True),
        ({"gathers": "list"}, True),  # the prompts of the first rank alone
        ({"cut": "[:-1]"}, True),
    ],
)
def test_faults(loads: Loads, broken: dict[str, str], found: bool) -> None:
    target, boundary = _bound(loads, **broken)
    (setting,) = boundary.settings
    check_verdict(DAT001, boundary, setting, target, found=found)
