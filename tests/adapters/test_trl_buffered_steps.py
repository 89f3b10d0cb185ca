"""TRL's distillation on a buffered generation batch, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_data_specimen import DATASETS
from adapters.trl_inline_specimen import overlay
from adapters.trl_pairs_specimen import filled
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, buffered_steps
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class GOLDConfig:
        output_dir: str = ""
        beta: float = 0.5
        lmbda: float = 0.5
        temperature: float = 1.0
        gradient_accumulation_steps: int = 1
        generation_batch_size: int = 1
"""

TRAINER = """
    from types import SimpleNamespace
    import torch

    class GOLDTrainer:
        def __init__(self, model, teacher_model, args, train_dataset, processing_class):
            self.args, self.accelerator, self.state = args, SimpleNamespace(), SimpleNamespace(global_step=0)
            self._step, self._buffer = 0, []

        def get_train_dataloader(self):
            assert self.args.generation_batch_size == len(self.train_dataset)
            return [self.data_collator(self.train_dataset)] * self.args.gradient_accumulation_steps

        def get_batch_samples(self, batches, count):
            taken = [next(batches) for _ in range(count)]
            self._fill_buffer(taken[0], count)
            return taken, sum((batch["labels"] != -100).sum() for batch in {counted})

        def _fill_buffer(self, batch, count):
            if self.lmbda:
                asked = [ids[own.bool()] for ids, own in zip(batch["prompts"], batch["prompt_attention_mask"])]
                _, rows, _, _ = self.vllm_generation.generate(prompts=[ids.tolist() for ids in asked])
                wide = batch["prompts"].shape[1] + max(map(len, rows))
                ids, labels = torch.zeros(len(rows), wide).long(), torch.full((len(rows), wide), -100)
                for n, (prompt, row) in enumerate(zip(asked, rows)):
                    end = len(prompt) + len(row)
                    ids[n, :end], labels[n, len(prompt):end] = torch.tensor(prompt.tolist() + row), torch.tensor(row)
                batch = {"input_ids": ids, "labels": labels}
            parts = [column.chunk(count) for column in (batch["input_ids"], batch["labels"])]
            self._buffer = [{"input_ids": ids, "labels": labels} for ids, labels in zip(*parts)]

        def training_step(self, model, inputs, num_items_in_batch):
            part = self._buffer[self._step]
            self._step += 1
            trained = part["labels"][:, 1:] != -100
            both = {student}, self.teacher_model
            one, other = (m(input_ids=part["input_ids"]).logits[:, :-1][trained] for m in both)
            student, teacher, beta = one.log_softmax(-1), other.log_softmax(-1), self.args.beta
            mixed = (beta * teacher.exp() + (1 - beta) * student.exp()).log()
            tokens = beta * (teacher.exp() * (teacher - mixed)).sum(-1)
            tokens = tokens + (1 - beta) * (student.exp() * (student - mixed)).sum(-1)
            self.accelerator.backward(tokens.sum() / num_items_in_batch)
"""

OFFLINE, SAMPLED, PARALLEL = "completions of the data set", "sampled completions", "data-parallel"


def _bound(loads: Loads, counted: str = "self._buffer", student: str = "model") -> tuple[Target, dict[str, Boundary]]:
    tree = {f"trl/{place}__init__.py": "" for place in ("", "experimental/", "experimental/gold/")}
    tree |= {
        "trl/experimental/gold/gold_config.py": CONFIG,
        "trl/experimental/gold/gold_trainer.py": filled(TRAINER, {"counted": counted, "student": student}),
    }
    target = loads(FRAMEWORK, tree, {**overlay(), "datasets.py": DATASETS})
    return target, by_setting(buffered_steps.boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    """Completions of the data set, and completions that the student samples."""
    target, boundaries = _bound(loads)
    assert set(boundaries) == {OFFLINE, SAMPLED, PARALLEL}
    check_calls(target, boundaries.values())


CASES = [
    (SPL001, OFFLINE, "self._buffer", True),
    (SPL001, OFFLINE, "taken", False),
    (REF001, OFFLINE, "taken", True),
    (REF001, SAMPLED, "self._buffer", True),
    (REF001, SAMPLED, "taken[:1]", False),
]


@pytest.mark.parametrize(("law", "setting", "counted", "sound"), CASES)
def test_tokens_by_which_a_step_is_divided(loads: Loads, law: Law, setting: str, counted: str, sound: bool) -> None:
    """A loader that repeats its batch counts its tokens once per micro-batch; a data set's are not those sampled."""
    target, boundaries = _bound(loads, counted)
    check_verdict(law, boundaries[setting], setting, target, found=not sound)


@pytest.mark.parametrize(("student", "sound"), [("model", True), ("self.accelerator.unwrap_model(model)", False)])
def test_forward_pass_of_the_wrapper(loads: Loads, student: str, sound: bool) -> None:
    """Ranks share a gradient only after a forward pass of the model's wrapper."""
    target, boundaries = _bound(loads, student=student)
    check_verdict(CFG002, boundaries[PARALLEL], PARALLEL, target, found=not sound)
