"""A replacement model that returns known logits to TRL's trainers, and the call of its forward pass."""

import inspect
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.trl.tiny_trainer import make_trainer


class Logits(nn.Module):
    """A model, or the backbone of one, whose answer at position p of a sequence belongs to its token p + 1.

    The prompt's last token names the row, so that rows may come in any cut.
    """

    def __init__(self) -> None:
        """Start without an answer."""
        super().__init__()
        self.answers: Tensor = torch.empty(0)
        self.prompt = 2

    def forward(self, input_ids: Tensor, logits_to_keep: int = 0, **_more: object) -> SimpleNamespace:
        """The answers for these rows, of all positions or of the last ones."""
        found = self.answers[input_ids[:, self.prompt - 1]]
        before = found.new_zeros(len(found), self.prompt - 1, found.shape[2])
        whole = torch.cat([before, found, found.new_zeros(len(found), 1, found.shape[2])], 1)
        whole = whole[:, -logits_to_keep:] if logits_to_keep else whole
        return SimpleNamespace(logits=whole, last_hidden_state=whole, aux_loss=None)


def logit_trainer(kind: str, temperature: float) -> Any:  # noqa: ANN401 - a trainer
    """A trainer at a sampling temperature; its model, or the backbone below its head, answers with known logits."""
    trainer = make_trainer(kind, temperature=temperature)
    trainer.kind, trainer.known = kind, Logits()
    fused = "fused_lm_head" in inspect.getsource(inspect.unwrap(per_token(trainer).__func__))
    trainer.asked = trainer.model if fused else trainer.known
    if fused:
        trainer.model.model = trainer.known
    trainer.fused = fused
    return trainer


def per_token(trainer: Any) -> Any:  # noqa: ANN401 - a trainer, and its method
    """The method that computes log-probs."""
    name = "_get_per_token_logps_and_entropies"
    return getattr(trainer, name if hasattr(trainer, name) else "_get_per_token_logps")


def compute_log_probs(
    trainer: Any,  # noqa: ANN401 - a trainer
    logits: Tensor,
    completion_ids: Tensor,
    completion_mask: Tensor,
    **passed: int,
) -> dict[str, Tensor]:
    """The log-probs of completions, and their entropies where they are computed, for prompts of one and two tokens."""
    rows = torch.arange(len(logits))
    prompt_ids, prompt_mask = torch.stack([torch.zeros_like(rows), rows], 1), torch.stack([rows % 2, rows * 0 + 1], 1)
    trainer.known.answers = logits
    if trainer.fused:
        head = nn.Linear(logits.shape[2], logits.shape[2], bias=False)
        head.weight = nn.Parameter(torch.eye(logits.shape[2], dtype=logits.dtype), requires_grad=False)
        trainer.model.get_output_embeddings = partial(getattr, SimpleNamespace(head=head), "head")
    compute = per_token(trainer)
    entropies = {"compute_entropy": True} if "compute_entropy" in inspect.signature(compute).parameters else {}
    made = compute(
        trainer.asked,
        torch.cat([prompt_ids, completion_ids], 1),
        torch.cat([prompt_mask, completion_mask], 1),
        completion_ids.shape[1],
        **passed,
        **entropies,
    )
    return {"logprob": made[0], "entropy": made[1]} if isinstance(made, tuple) else {"logprob": made}
