"""Batches of the workers of :mod:`~rl_sentinel.adapters.verl.worker_rollouts`: the prompts, and the rows returned."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.scripted_sampling import fit_to_length
from rl_sentinel.adapters.verl.sampling_engine_fakes import END, PAD, SHIFT, shifted


def columns_of(found: Any, sizes: list[int], lengths: list[int], width: int) -> dict[str, list[Tensor]]:  # noqa: ANN401
    """The columns of the rows of a TensorDict, with the lengths of their responses and prompts."""
    responses = zip(found["responses"], found["attention_mask"], sizes, strict=True)
    positions = zip(found["position_ids"], lengths, sizes, strict=True)
    log_probs = found["rollout_log_probs"] if "rollout_log_probs" in found.keys() else ()  # noqa: SIM118 - a TensorDict
    return {
        "tokens": [_tokens(ids[mask[-width:].bool()].tolist(), n, width) for ids, mask, n in responses],
        "positions": [_misplaced(row[:-width], row[-width:], *size) for row, *size in positions],
        "logprobs": [x[:n] for x, n in zip(log_probs, sizes, strict=False)],
    }


def common_value(copies: list[Tensor], wrong: float) -> Tensor:
    """The common value of all samples of a prompt; ``wrong`` if the samples differ."""
    return copies[0] if all(one.equal(copies[0]) for one in copies) else torch.full_like(copies[0], wrong)


def _tokens(covered: list[int], size: int, width: int) -> Tensor:
    """The tokens of a response, unshifted and without its end token; a response without end token is too long."""
    ends = size < width
    own = covered[:-1] if ends and covered[-1:] == [END] else [*covered, PAD] if ends else covered
    return fit_to_length([token - SHIFT for token in own], size, -1)


def _misplaced(prompt: Tensor, response: Tensor, prompt_size: int, size: int) -> Tensor:
    """The number of tokens of a row whose position is not the number of tokens before it."""
    own = torch.cat([prompt[prompt.numel() - prompt_size :], response[:size]])
    return (own != torch.arange(own.numel())).sum().float()


def batch_of(kind: Any, prompts: list[list[int]], *, validate: bool, greedy: bool = False) -> Any:  # noqa: ANN401 - of the class DataProto
    """The batch of the prompts: tensors padded at the left, and lists of token ids."""
    ids = [shifted(prompt) for prompt in prompts]
    width = 1 + max(map(len, ids))
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    tensors = {
        "input_ids": torch.tensor([[PAD] * (width - len(row)) + row for row in ids]),
        "attention_mask": mask,
        "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
    }
    lists = np.empty(len(ids), dtype=object)
    lists[:] = ids
    about = {"eos_token_id": END, "pad_token_id": PAD, "do_sample": not greedy, "validate": validate}
    return kind.from_dict(tensors, non_tensors={"raw_prompt_ids": lists}, meta_info=about)
