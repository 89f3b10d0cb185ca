"""TRL's asynchronous distillation, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import files, filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, async_distillation
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002

TRAINER = """
    import numpy
    import torch
    from torch.nn.utils.rnn import pad_sequence

    class FixedCountBatcher:
        def __init__(self, dataset, num_processes, microbatch_size):
            self.rows, self.ranks = dataset, num_processes

        def __iter__(self):
            size = -(-len(self.rows) // self.ranks)
            yield [self.rows[n * size : (n + 1) * size] for n in range(self.ranks)]

    class DataCollatorForRollout:
        def __init__(self, pad_token_id, num_processes):
            self.pad, self.ranks = pad_token_id, num_processes

        def torch_call(self, examples):
            names = ("input_ids", "completion_mask", "teacher_topk_ids", "teacher_topk_logprobs")
            packed = {
                name: [torch.as_tensor(numpy.concatenate([one[name] for one in row])) for row in examples[0]]
                for name in names
            }
            attended = [torch.ones(len(row)) for row in packed["input_ids"]]
            trained = sum(int(row.sum()) for row in packed["completion_mask"])
            batch = {name: pad_sequence(rows, batch_first=True) for name, rows in packed.items()}
            counted = torch.full((self.ranks,), float(trained))
            return {**batch, "attended": pad_sequence(attended, batch_first=True), "global_n_tokens": counted}

    class AsyncDistillationTrainer:
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            own = self.accelerator.unwrap_model(model)
            return self._forward_redirection(model, own, self._loss_of, own, inputs)

        def _loss_of(self, model, inputs):
            kept = inputs["attended"].bool()
            ids = inputs["input_ids"][kept].unsqueeze(0)
            with self.accelerator.autocast():
                hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
            scores = (hidden[0, :-1] @ model.get_output_embeddings().weight.T).log_softmax(-1)
            mask = inputs["completion_mask"][kept][1:].bool()
            words = inputs["teacher_topk_ids"][kept]{shift}[mask]
            teacher = inputs["teacher_topk_logprobs"][kept][1:][mask]
            spread = -(scores.exp() * scores).sum(-1)
            self._metrics["train"]["entropy"].append(spread[{where}].mean().item())
            divergence = (teacher.exp() * (teacher - scores[mask].gather(1, words))).sum()
            tokens = {count} / self.accelerator.num_processes
            return divergence / tokens / self.current_gradient_accumulation_steps
"""

SOUND = {"shift": "[1:]", "where": "mask", "count": 'inputs["global_n_tokens"][0]'}


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    source = filled(TRAINER, SOUND | choices)
    place = "trl/experimental/async_distillation/async_distillation_trainer.py"
    target = loads(FRAMEWORK, {**files(), place: source}, overlay())
    return target, by_setting(async_distillation.boundaries(target))


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Both cuts bind, and every column survives the round trip."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == ["default", "over ranks"]
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "choices"),
    [
        (REF001, "default", {"shift": "[:-1]"}),
        (REF001, "default", {"where": "mask | True"}),
        (SPL002, "over ranks", {"count": "mask.sum()"}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, choices: dict[str, str], *, sound: bool) -> None:
    """The teacher's words of the token before, entropy of prompts, and a count of one rank's tokens."""
    target, boundaries = _bound(loads, **({} if sound else choices))
    check_verdict(law, boundaries[setting], setting, target, found=not sound)
