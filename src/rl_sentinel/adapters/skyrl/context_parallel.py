"""SkyRL's log-probs of packed sequences over context-parallel ranks."""

import contextlib
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, Lengths
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.logit_kernels import FORMULAS
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_number, run_on_ranks
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

_MEGATRON = "skyrl.backends.skyrl_train.distributed.megatron"
LOG_PROBS = f"{_MEGATRON}.model_utils.from_parallel_logits_to_logprobs_packed_sequences"
_CODE: Mapping[str, str] = {
    "log_probs": LOG_PROBS,
    "pack": f"{_MEGATRON}.megatron_utils.preprocess_packed_seqs",
    "targets": "skyrl.backends.skyrl_train.workers.megatron.megatron_model_wrapper._build_packed_targets",
}

#: The groups of the ranks, by which the fakes of collectives recognize them; the second has one rank.
_CONTEXT = object()
_TENSOR = object()

_SHARDED = (
    "model_utils.py, from_parallel_logits_to_logprobs_packed_sequences: log probabilities of packed sequences, "
    "scattered back to their padded positions; megatron_utils.py, preprocess_packed_seqs: each rank has two chunks"
)


#: How a user gets to the settings -> the settings. SkyRL's Megatron (71e418ea, since June 2026) resets the state of
#: recurrent layers by ``PackedSeqParams.seq_idx``, which it makes if ``total_tokens`` is set (packed_seq_params.py).
FAMILIES: Mapping[str, Mapping[str, Settings]] = {
    "strategy=megatron, trainer.policy.megatron_config.context_parallel_size above 1": {
        "packed": {},
        "packed, two ranks": {"ranks": 2},
    },
    "strategy=megatron, trainer.remove_microbatch_padding=True, a model with Mamba layers": {
        "packed, recurrent layers": {"recurrent": True}
    },
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the log-probs, in releases in which each rank computes the log-probs of its chunks."""
    if all(target.has(path) and not target.fails(path) for path in _CODE.values()):
        yield from bindable(target, *(_boundary(settings, reach) for reach, settings in FAMILIES.items()))


def packed_log_probs(  # noqa: PLR0913 - functions of the target, the responses and two settings
    code: Mapping[str, Any],
    logits: Tensor,
    tokens: Tensor,
    lengths: list[int],
    ranks: int,
    recurrent: bool,  # noqa: FBT001 - a setting
) -> Tensor:
    """Compute the log-probs ``[B, T]`` of responses after prompts of one token, with the gradients of all ranks.

    Rows are padded on the left, as in the trainer. The model's input at a position is the index of the position, so
    that the fake model can look up the logits of the position. The logits of a ``recurrent`` model are others where
    its state has tokens of another sequence.
    """
    (rows, width, vocabulary), sequences = logits.shape, torch.zeros_like(tokens[:, :1]).repeat(1, tokens.shape[1] + 1)
    mask = torch.zeros_like(sequences, dtype=torch.bool)
    places = torch.zeros_like(sequences)
    before = torch.zeros(1 + sequences.numel(), dtype=torch.long)  # the tokens of a sequence before each place
    for row, length in enumerate(lengths):
        mask[row, width - length :] = True
        sequences[row, width - length + 1 :] = tokens[row, :length]
        places[row, width - length :] = 1 + row * (width + 1) + torch.arange(length + 1)
        before[places[row, width - length :]] = torch.arange(length + 1)
    after_end = torch.zeros_like(logits[:, :1])
    table = torch.cat([after_end[:1, 0], torch.cat([logits, after_end], 1).reshape(-1, vocabulary)])

    def work(_rank: int) -> tuple[Tensor, Tensor]:
        leaf = table.detach().requires_grad_()
        packed, params = code["pack"](places, mask)
        outputs = leaf[packed]
        if recurrent:
            others = tokens_in_state(params, packed.shape[1]) - before[packed]
            outputs = outputs + (others * (packed > 0)).unsqueeze(-1) * torch.linspace(0, 1, vocabulary)
        found = code["log_probs"](
            outputs,
            code["targets"](sequences, mask, params),
            params.cu_seqlens_q_padded,
            width + 1,
            vocab_start_index=0,
            vocab_end_index=vocabulary,
            group=_TENSOR,
            cp_group=_CONTEXT,
            attention_mask=mask,
        )
        torch.autograd.backward([found.sum()])
        return found.detach(), torch.zeros_like(table) if leaf.grad is None else leaf.grad

    with _context_of(ranks, *(function.__globals__ for function in code.values())):
        results = run_on_ranks(ranks, work)
    slopes = torch.stack([slope for _, slope in results]).sum(0)[1:].reshape(rows, width + 1, vocabulary)[:, :width]
    response = torch.stack(
        [
            torch.nn.functional.pad(row[width - length :], (0, width - length))
            for row, length in zip(results[-1][0], lengths, strict=True)
        ]
    )
    linear = (logits * slopes).sum(-1)
    return response + linear - linear.detach()


def tokens_in_state(params: Any, count: int) -> Tensor:  # noqa: ANN401 - Megatron's class
    """The number of earlier tokens ``[1, N]`` in the state of a recurrent layer of Megatron at each token.

    A layer starts anew where the index of the sequence changes. Megatron computes this index from the boundaries of
    the packed sequences if it has the number of all tokens; without the index there is one state for the whole pack.
    """
    positions = torch.arange(count)
    if getattr(params, "total_tokens", None) is None:
        return positions.unsqueeze(0)
    starts: Tensor = params.cu_seqlens_q_padded[:-1].long()
    sequence = torch.searchsorted(starts, positions, right=True) - 1
    return (positions - starts[sequence]).unsqueeze(0)


def _context_of(ranks: int, *modules: dict[str, Any]) -> Any:  # noqa: ANN401 - a context manager
    """Replace Megatron's parallel state in the modules, and torch's collectives, by fakes over threads."""
    state = SimpleNamespace(**parallel_state_of_one_process())
    state.get_context_parallel_world_size = lambda **_options: ranks
    state.get_context_parallel_rank = lambda **_options: rank_number()
    stack = contextlib.ExitStack()
    stack.enter_context(replaced_globals(*modules, mpu=state, PackedSeqParams=SimpleNamespace))
    collectives = {
        "get_world_size": lambda group=None: ranks if group is _CONTEXT else 1,
        "get_rank": lambda group=None: rank_number() if group is _CONTEXT else 0,
        "all_reduce": lambda *_passed, **_options: None,  # over the ranks of the vocabulary: one
        "all_gather": _all_gather,
    }
    stack.enter_context(replaced_globals(vars(dist), **collectives))
    return stack


def _all_gather(tensor_list: list[Tensor], tensor: Tensor, group: object = None) -> None:
    """Write the tensors of the group's ranks to ``tensor_list``."""
    for place, part in zip(tensor_list, gather_from_ranks(tensor) if group is _CONTEXT else [tensor], strict=True):
        place.copy_(part)


def _boundary(settings: Mapping[str, Settings], reach: str) -> Boundary:
    return one_call(
        path=LOG_PROBS,
        stage="batch",
        call=packed_log_probs,
        name="made",
        arguments={
            "code": Table(functions(**_CODE)),
            "logits": Column("logits"),
            "tokens": Column("token"),
            "lengths": Lengths(),
            "ranks": Knob("ranks", 1),
            "recurrent": Knob("recurrent", default=False),
        },
        produced_by={"logits": "megatron_model_wrapper.py, forward_step: the model's output for the packed tokens"},
        reads=frozenset({"logits", "token", "length"}),
        outputs={"logprob": Output("B T", "nats", "logprob", at=Use("made"), form=Padded())},
        settings=settings,
        claims=claims(_SHARDED, output_algorithms={"logprob": FORMULAS["logprob"]}) | claims(_SHARDED, gradient="own"),
        reach=reach,
    )
