"""SkyRL's supervised fine-tuning on Megatron with packed sequences, from the collator to the loss."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.skyrl.arguments import CONFIG
from rl_sentinel.adapters.skyrl.megatron_run import (
    MODEL_STEP,
    STEP,
    code_of,
    device_fake,
    has_worker,
    run_on_megatron,
)
from rl_sentinel.adapters.skyrl.megatron_worker import RANKS
from rl_sentinel.adapters.skyrl.supervised import Padding
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

COLLATOR = "skyrl.train.dataset.collators.PackedDataCollator"
LOG_PROBS = (
    "skyrl.backends.skyrl_train.distributed.megatron.model_utils.from_parallel_logits_to_logprobs_packed_sequences"
)

#: Ids of every response token, and of the first row's prompt; a prompt is one token, and 0 is padding.
_TOKEN, _FIRST_PROMPT = 1, 2

#: The output of the fake model for every token except the next token.
_WRONG = 9.0

#: Ranks that share a sequence, which makes every example begin at an even position.
_TENSOR_PARALLEL = 2

_CLAIMS = claims(
    "collators.py, PackedDataCollator: the workers sum; the mask is divided by the trained tokens of the batch to get "
    "the true loss value",
    algorithm="negative log-likelihood",
    aggregation="token-mean",
    denominator="given",
)
_PRODUCER = (
    "skyrl/train/sft_trainer.py, tokenize_chat_example: input_ids, num_actions and the loss mask of the response; "
    "_build_collator: parallel sizes, capacity and batch size; train_step: loss_fn=cross_entropy"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss, in releases that pack sequences."""
    if not target.has(COLLATOR) or not target.has(LOG_PROBS) or not has_worker(target):
        return
    if why := target.fails(COLLATOR) or target.fails(LOG_PROBS):
        yield Unbound(COLLATOR, "policy-loss", why)
        return
    yield from bindable(target, _packed(target))


class PackedModel:
    """A fake model on packed rows; it returns log-probs over the vocabulary, correct only for the next token."""

    def __init__(self, logprobs: list[Tensor]) -> None:
        """Store the log-probs of all responses."""
        self.logprobs = logprobs

    def __call__(self, sequences: Tensor, *_inputs: object, packed_seq_params: Any, **_options: object) -> Tensor:  # noqa: ANN401 - Megatron's class
        """The output at every position, ``[1, N, V]``; the first token of an example encodes its index."""
        outputs = torch.full((1, sequences.shape[1], _FIRST_PROMPT + len(self.logprobs)), _WRONG)
        for start in packed_seq_params.cu_seqlens_q_padded.tolist()[:-1]:
            part = self.logprobs[int(sequences[0, start]) - _FIRST_PROMPT]
            outputs[0, start : start + len(part), _TOKEN] = part
        return outputs

    def zero_grad_buffer(self) -> None:
        """Do nothing."""


def train_packed(  # noqa: PLR0913 - classes of the target, and the arguments of its trainer
    collator: Callable[..., Any],
    code: dict[str, Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    masks: list[list[int]],
    logprobs: list[Tensor],
    parts: int,
    ranks: int,
) -> Tensor:
    """Pack the examples into rows, and train one row at a time; return the loss.

    A row has room for 1 / ``parts`` of the tokens of a rank, or for the longest example if that is longer.
    """
    lengths = [1 + len(mask) for mask in masks]
    collate = collator(
        tokenizer=Padding(),
        max_tokens_per_microbatch=max(*lengths, 2, math.ceil(sum(lengths) / (parts * ranks))),
        tp_size=_TENSOR_PARALLEL,
        pp_size=1,
        cp_size=1,
        dp_size=ranks,
        batch_size=len(masks),
        micro_train_batch_size_per_gpu=1,
    )
    examples = [
        {"input_ids": [_FIRST_PROMPT + n, *[_TOKEN] * len(mask)], "num_actions": len(mask), "loss_mask": mask}
        for n, mask in enumerate(masks)
    ]
    data = collate(examples, batch_size=len(examples))
    rows_of_rank = data.batch_size // ranks
    loss, _ = run_on_megatron(
        code, cfg, PackedModel(logprobs), data, rows_of_rank, ranks, packed=True, loss_fn="cross_entropy"
    )
    return loss


def _packed(target: Target) -> Boundary:
    return one_call(
        path=f"{COLLATOR} -> {STEP} -> {MODEL_STEP}",
        stage="policy-loss",
        call=train_packed,
        name="loss",
        arguments={
            "collator": Constant(Function(COLLATOR)),
            "code": code_of(target, packed_log_probs=LOG_PROBS, tensor_parallel=_TENSOR_PARALLEL),
            "cfg": Config(CONFIG),
            "masks": EachRow(RowTokens("mask", "int")),
            "logprobs": Column("logprob", Ragged()),
            "parts": MICRO_BATCHES,
            "ranks": RANKS,
        },
        fakes=device_fake(target),
        produced_by={"masks": _PRODUCER},
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings={"supervised, packed": {}},
        claims=_CLAIMS,
        reach="supervised fine-tuning with strategy=megatron, use_sequence_packing=true",
        requires=(no_empty_response, equal_parts, has_trained_token),
    )
