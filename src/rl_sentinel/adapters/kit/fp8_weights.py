"""Weights that a trainer sends to its engine in FP8: the numbers that the engine reads from them and their scales."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.core.boundary import Boundary, Step
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims

#: The size of a model's weights, which FP8 rounds away without a scale.
SIZE = 1e-3

#: Setting -> the side of the blocks that have one scale each; 0: one scale for the whole weight.
PER_TENSOR: Mapping[str, Settings] = {"FP8, one scale": {"block": 0}}
PER_BLOCK: Mapping[str, Settings] = {"FP8, a scale per block": {"block": 2}}

#: Rounding to 3 bits, and of a scale to bfloat16.
_RELATIVE = 2**-4 + 2**-8

#: The largest number of the format e4m3, and the distance of its smallest ones.
_LARGEST, _STEP = 448.0, 2**-9


def trained_weight(row: list[float]) -> Tensor:
    """A weight ``[2, W]``, with W even: the numbers of a row above ones, so that no block has only zeros."""
    numbers = torch.tensor([*row, *[1.0] * (len(row) % 2)])
    return SIZE * torch.stack([numbers, torch.ones_like(numbers)])


def quantization(block: int) -> dict[str, Any]:
    """The section ``quantization_config`` of a model in FP8, as in its ``config.json``."""
    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    return config | ({"weight_block_size": [block, block]} if block else {})


def row_read(row: list[float], named: Iterable[tuple[str, Tensor]]) -> Tensor:
    """The numbers of a row that an engine reads: those of the weight times their scales; NaN without a scale.

    Numbers that differ from the row's by the rounding of FP8 count as equal.

    Example:
        >>> import torch
        >>> from rl_sentinel.adapters.kit.fp8_weights import row_read, trained_weight
        >>> weight = trained_weight([2.0, -1.0])
        >>> numbers = (weight / 1e-5).to(torch.float8_e4m3fn)
        >>> row_read([2.0, -1.0], [("a.weight", numbers), ("a.weight_scale", torch.tensor(1e-5))]).tolist()
        [2.0, -1.0]
    """
    sent = dict(named)
    weight = next(tensor.float() for name, tensor in sent.items() if name.endswith(".weight"))
    scale = next((tensor.float() for name, tensor in sent.items() if "weight_scale" in name), torch.tensor(torch.nan))
    if scale.numel() > 1:
        side = weight.shape[1] // scale.numel()  # a weight has two rows, one block
        scale = scale.flatten().repeat_interleave(side)
    found, expected = (weight * scale)[0, : len(row)] / SIZE, torch.tensor(row)
    smallest = max(1.0, float(expected.abs().max())) * _STEP / _LARGEST
    return torch.where(torch.isclose(found, expected, rtol=_RELATIVE, atol=smallest), expected, found)


def fp8_boundary(  # noqa: PLR0913 - the parts in which the boundaries differ
    path: str,
    call: Callable[..., Any],
    code: Mapping[str, str],
    settings: Mapping[str, Settings],
    claimed: Claims,
    reach: str,
    produced: str,
) -> Boundary:
    """The boundary of a call that gets functions of the target, ``rows`` and ``block``, and returns rows as read.

    ``code`` maps each parameter to the path of its function. The result is a dict with the rows as ``logprobs``.
    """
    rows = EachRow(RowTokens("rollout_logprob"))
    step = Step(
        call=call,
        name="weights",
        arguments={**functions(**code), "rows": rows, "block": Knob("block")},
        produced_by={"rows": produced},
    )
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        outputs=row_outputs(Use("weights"), "rollout_logprob"),
        settings=settings,
        claims=claimed,
        reach=reach,
        requires=(no_empty_response,),
    )
