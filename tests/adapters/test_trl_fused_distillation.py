"""TRL's distillation with a fused divergence, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import files, filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, fused_distillation, rollout_metrics
from rl_sentinel.adapters.trl.logit_model import Head
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

TRAINER = """
    from collections import defaultdict
    from types import SimpleNamespace

    import torch

    def _chunked_divergence_loss(student, teacher, heads, mask, beta, temperature):
        one, two = (
            ((hidden @ head.weight.T + {bias}) / temperature).log_softmax(-1)
            for hidden, head in zip((student, teacher), heads)
        )
        kl = lambda a, b: (a.exp() * (a - b)).sum(-1)
        if beta in (0, 1):
            tokens = kl(one, two) if beta else kl(two, one)
        else:
            mixed = (beta * two.exp() + (1 - beta) * one.exp()).log()
            tokens = beta * kl(two, mixed) + (1 - beta) * kl(one, mixed)
        return (tokens * mask).sum(), (kl(one, torch.zeros_like(one)).neg() * {where}).sum()

    class DistillationTrainer:
        def __init__(self, model, teacher_model, args, train_dataset, processing_class):
            self.model, self.args, self.state, self.accelerator = model, args, SimpleNamespace(), SimpleNamespace()
            self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}

        def _generate_single_turn(self, prompt_ids):
            raise RuntimeError("an engine runs here")
            return completion_ids

        def _generate(self, prompts):
            completion_ids = self._generate_single_turn([[4] for _ in prompts])
            lengths = {gathers}(torch.tensor([len(ids) for ids in completion_ids]))
            self._metrics["train"]["completions/mean_length"].append(lengths.float().mean().item())
            return [[4] for _ in prompts], completion_ids, [[1] * len(ids) for ids in completion_ids]

        def _generate_and_score_completions(self, inputs):
            prompt_ids, completion_ids, tool_mask = self._generate([row["prompt"] for row in inputs])
            count = sum({counted} for ids, mask in zip(completion_ids, tool_mask))
            return {"prompt_ids": prompt_ids, "num_items_in_batch": torch.tensor(float(count))}

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            mask, width = inputs["completion_mask"] * inputs["tool_mask"], inputs["completion_ids"].shape[1]
            models = (model, self.teacher_model)
            hidden = [one.base_model(input_ids=ids).last_hidden_state[:, {shift}][:, -width:] for one in models]
            heads = [one.get_output_embeddings() for one in models]
            loss, entropy = self._forward_redirection(
                model, model, _chunked_divergence_loss, *hidden, heads, mask, self.beta, self.temperature
            )
            self._metrics["train"]["entropy"].append((entropy / mask.sum()).item())
            return loss / {count}
"""

SOUND = {
    "bias": "head.bias",
    "shift": ":-1",
    "count": 'inputs["num_items_in_batch"]',
    "where": "mask",
    "counted": "sum(mask)",
    "gathers": "self.accelerator.gather",
}


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    source = filled(TRAINER, SOUND | choices)
    tree = files()
    tree["trl/trainer/distillation_config.py"] = tree["trl/trainer/grpo_config.py"].replace("GRPO", "Distillation")
    target = loads(FRAMEWORK, {**tree, "trl/trainer/distillation_trainer.py": source}, overlay())
    every = [*fused_distillation.boundaries(target), *rollout_metrics.boundaries(target)]
    made = [one for one in every if isinstance(one, Boundary) and "DistillationTrainer" in one.path]
    return target, {next(iter(one.settings)): one for one in made}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each mixture binds, and every column survives the round trip."""
    target, boundaries = _bound(loads)
    assert {"default", "beta 0", "beta 1", "temperature", "logged of logits", "logged lengths"} <= set(boundaries)
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "choices"),
    [
        (REF001, "default", {"bias": "head.bias.detach()"}),
        (REF001, "beta 0", {"shift": "1:"}),
        (SPL001, "default", {"count": "mask.sum()"}),
        (REF001, "default", {"counted": "len(ids)"}),
        (MET005, "logged lengths", {"gathers": ""}),
        (REF001, "logged of logits", {"where": "1"}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, choices: dict[str, str], sound: bool) -> None:
    """A bias without a gradient, logits of the next token, counts and entropy of what trains, lengths of all ranks."""
    target, boundaries = _bound(loads, **({} if sound else choices))
    check_verdict(law, boundaries[setting], setting, target, found=not sound)


def test_gradient_of_a_head() -> None:
    """Hidden states, weight and bias together are the logits, and each has a part of their gradient."""
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    head, weights = Head(logits), torch.randn(2, 3, 4, dtype=torch.float64)
    out = head.hidden @ head.weight.T + head.bias
    assert torch.allclose(out, logits)
    (whole,) = torch.autograd.grad((out * weights).sum(), logits, retain_graph=True)
    assert torch.allclose(whole, weights)
    without_bias = head.hidden @ head.weight.T + head.bias.detach()
    (part,) = torch.autograd.grad((without_bias * weights).sum(), logits)
    assert not torch.allclose(part, weights)
