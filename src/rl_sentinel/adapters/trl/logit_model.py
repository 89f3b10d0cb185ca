"""A fake model with known logits, and a call of TRL's log-prob method on this model."""

import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.trl.tiny_trainer import make_trainer

#: How many tokens and vocabulary entries a fused head processes at once here; its defaults exceed a whole batch.
CHUNK = 2

#: Modules with fused heads, and their names for the numbers of tokens and vocabulary entries taken at once.
CHUNKED = ("trl.trainer.utils", "trl.kernels.chunked_logprob", "trl.kernels.chunked_divergence")
SIZES = ("_CHUNKED_LOGPROB_CHUNK_SIZE", "TOKEN_CHUNK_SIZE", "VOCAB_CHUNK_SIZE")


def of_shared_weights(logits: Tensor, known: Tensor) -> Tensor:
    """The logits plus 0 times all known logits, as if all positions shared the weights that produce them.

    A gradient that is NaN at a padding position is then NaN at every token, as with real weights.
    """
    return logits + 0 * known.sum()


class Head:
    """An output layer for known logits: the bias is their mean over tokens.

    Half of the rest is in the weight and half in the hidden states, so that the gradient of a logit flows through all
    three.
    """

    def __init__(self, logits: Tensor) -> None:
        """Split ``[B, T, V]`` logits into hidden states, weight and bias."""
        flat = logits.flatten(0, 1)
        self.bias = flat.mean(0)
        half = (flat - self.bias) / 2
        self.weight = torch.cat([torch.eye(flat.shape[1], dtype=flat.dtype), half.T], 1)
        places = torch.eye(len(flat), dtype=flat.dtype)
        self.hidden = torch.cat([half, places], 1).reshape(*logits.shape[:2], -1)


class Logits(nn.Module):
    """A fake model or backbone; the logits at position p predict token p + 1.

    The last token of the prompt is the row's index, so that the model finds a row's logits however the trainer splits
    the batch. If a row's attention mask is wrong (it includes padding or leaves out a token), the model returns zeros
    for this row, so that the error shows.
    """

    def __init__(self) -> None:
        """Start without logits and hidden states."""
        super().__init__()
        self.logits: Tensor = torch.empty(0)
        self.attended: Tensor = torch.empty(0)
        self.prompt = 2

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int = 0, **_more: object
    ) -> SimpleNamespace:
        """The logits of the rows, at all or the last ``logits_to_keep`` positions; 0 if the attention mask is wrong."""
        rows = input_ids[:, self.prompt - 1]
        right = (attention_mask == self.attended[rows]).all(1)
        logits = torch.where(right.reshape(-1, 1, 1), self.logits[rows], 0.0)
        before = logits.new_zeros(len(logits), self.prompt - 1, logits.shape[2])
        whole = torch.cat([before, logits, logits.new_zeros(len(logits), 1, logits.shape[2])], 1)
        whole = whole[:, -logits_to_keep:] if logits_to_keep else whole
        return SimpleNamespace(logits=whole, last_hidden_state=whole, aux_loss=None)


def logit_trainer(kind: str, temperature: float) -> Any:  # noqa: ANN401 - a trainer
    """A trainer at a sampling temperature. Its model, or with a fused head only its backbone, is a :class:`Logits`."""
    trainer = make_trainer(kind, temperature=temperature)
    trainer.kind, trainer.known = kind, Logits()
    fused = "fused_lm_head" in inspect.getsource(inspect.unwrap(per_token(trainer).__func__))
    trainer.forward_model = trainer.model if fused else trainer.known
    if fused:
        trainer.model.model = trainer.known
    trainer.fused = fused
    return trainer


def per_token(trainer: Any) -> Any:  # noqa: ANN401 - a trainer, and its method
    """The trainer's method that computes log-probs."""
    name = "_get_per_token_logps_and_entropies"
    return getattr(trainer, name if hasattr(trainer, name) else "_get_per_token_logps")


def compute_log_probs(
    trainer: Any,  # noqa: ANN401 - a trainer
    logits: Tensor,
    completion_ids: Tensor,
    completion_mask: Tensor,
    **options: int,
) -> dict[str, Tensor]:
    """Compute log-probs of completions after prompts of one or two tokens; also entropies, if the release has them."""
    rows = torch.arange(len(logits))
    prompt_ids, prompt_mask = torch.stack([torch.zeros_like(rows), rows], 1), torch.stack([rows % 2, rows * 0 + 1], 1)
    attended = torch.cat([prompt_mask, completion_mask], 1)
    trainer.known.logits, trainer.known.attended = logits, attended
    compute = per_token(trainer)
    entropies = {"compute_entropy": True} if "compute_entropy" in inspect.signature(compute).parameters else {}
    with fused_head(trainer, logits) if trainer.fused else nullcontext():
        computed = compute(
            trainer.forward_model,
            torch.cat([prompt_ids, completion_ids], 1),
            attended,
            completion_ids.shape[1],
            **options,
            **entropies,
        )
    if isinstance(computed, dict):  # in the middle of 2025
        computed = computed["logps"], computed["entropies"]
    return {"logprob": computed[0], "entropy": computed[1]} if isinstance(computed, tuple) else {"logprob": computed}


@contextmanager
def fused_head(trainer: Any, logits: Tensor) -> Iterator[None]:  # noqa: ANN401 - a trainer
    """Give the model these logits through a :class:`Head`, which the audited code applies in chunks."""
    head = Head(logits)
    trainer.known.logits = head.hidden
    trainer.model.get_output_embeddings = partial(getattr, SimpleNamespace(head=head), "head")
    with in_chunks():
        yield


@contextmanager
def in_chunks() -> Iterator[None]:
    """Make fused heads, if the release has any, process :data:`CHUNK` tokens and vocabulary entries at a time."""
    with ExitStack() as stack:
        for module in CHUNKED:
            if module in sys.modules:
                stack.enter_context(replaced_globals(vars(sys.modules[module]), **dict.fromkeys(SIZES, CHUNK)))
        yield
