"""Argument checks by the decorator: what is refused, in which words, and that nothing is read with checks off."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.signal.requirements import (
    FRACTION,
    explain_result,
)
from rl_sentinel.signal.segments import Mask, Segments
from rl_sentinel.signal.validation import validate

ROWS, FACTS, LABELS = torch.zeros(2), torch.ones(2).bool(), torch.zeros(2).long()


@validate(finite="reward")
def _of_rows(reward: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]) -> Tensor:
    return reward


@validate(rows=True, explain="value", decay=FRACTION)
def _of_tokens(value: Float[Tensor, "*S"], *, mask: Mask, decay: float, whole: bool = False) -> Tensor:
    return value * decay


@validate()
def _of_parts(parts: Float[Tensor, "B K"], *, weight: Float[Tensor, " K"], row: Float[Tensor, " B"] | None) -> Tensor:
    return parts


def test_valid_arguments() -> None:
    _of_rows(ROWS.bfloat16(), group=LABELS.to(torch.uint8), live=FACTS)
    _of_rows(torch.tensor([torch.nan, 1.0]), group=LABELS, live=torch.tensor([False, True]))
    _of_tokens(torch.zeros(2, 0), mask=torch.zeros(2, 0).bool(), decay=1)
    _of_tokens(ROWS, mask=FACTS, decay=0.5)
    _of_tokens(ROWS, mask=Segments(FACTS, torch.tensor([2, 0])), decay=0.5)
    _of_parts(torch.ones(2, 3), weight=torch.ones(3), row=None)


WIDE = "expected an integer dtype: labels and counts are integers; convert the tensor, as in group.long()"

REFUSED: dict[str, dict[str, Any]] = {
    "live has dtype float32, expected bool: a mask is True or False; compare numbers to make a mask, as in live > 0": {
        "live": ROWS
    },
    f"group has dtype float32, {WIDE}": {"group": ROWS},
    f"group has dtype bool, {WIDE}": {"group": FACTS},
    "reward has dtype int64, expected a floating-point dtype: convert the tensor, as in reward.float()": {
        "reward": LABELS
    },
    "reward is of type list, expected a tensor of a floating-point dtype: make a tensor, as in torch.tensor(reward)": {
        "reward": [0.5]
    },
    "reward is on the meta device, expected a device with values: the checks read the values": {
        "reward": ROWS.to("meta")
    },
    "live has shape [1], expected [2], as in reward": {"live": FACTS[:1]},
    "reward has shape [2, 1], expected 1 axis [B]: no tensor is broadcast": {"reward": ROWS.unsqueeze(1)},
    (
        "reward[1] is nan, expected a finite number: a row with a trained token needs a finite value (mask the row to "
        "leave it out)"
    ): {"reward": torch.tensor([0.0, torch.nan])},
}


@pytest.mark.parametrize("message", REFUSED)
def test_tensors(message: str) -> None:
    given: dict[str, Any] = {"reward": ROWS, "group": LABELS, "live": FACTS}
    with pytest.raises(InputError) as refused:
        _of_rows(**(given | REFUSED[message]))
    assert str(refused.value) == message
    assert isinstance(refused.value, SentinelError)
    assert isinstance(refused.value, ValueError)


def test_columns_and_their_mask() -> None:
    with pytest.raises(InputError, match=r"^mask has shape \[2, 2\], expected 1 axis \[B\]: no tensor is broadcast$"):
        _of_tokens(ROWS, mask=torch.ones(2, 2).bool(), decay=0.5)
    with pytest.raises(InputError, match=r"^value has shape \[2, 2\], expected 1 axis \[N\]: no tensor is broadcast$"):
        _of_tokens(torch.zeros(2, 2), mask=Segments(FACTS, torch.tensor([2])), decay=0.5)
    with pytest.raises(InputError, match=r"^weight has shape \[2\], expected \[3\], as in parts$"):
        _of_parts(torch.ones(2, 3), weight=torch.ones(2), row=None)
    with pytest.raises(InputError, match=r"^row has shape \[3\], expected \[2\], as in parts$"):
        _of_parts(torch.ones(2, 3), weight=torch.ones(3), row=torch.ones(3))


def test_plain_values() -> None:
    with pytest.raises(InputError, match=r"^decay is 1\.1, expected a number of 0 or more and at most 1$"):
        _of_tokens(ROWS, mask=FACTS, decay=1.1)
    with pytest.raises(InputError, match=r"^whole is 1, expected a bool: True or False$"):
        _of_tokens(ROWS, mask=FACTS, decay=0.1, whole=1)  # type: ignore[arg-type]  # what is refused


def test_a_result_that_is_not_finite_is_explained() -> None:
    with pytest.raises(
        InputError, match=r"^value\[0\] is nan, expected a finite number: a trained token needs a finite value"
    ):
        _of_tokens(torch.tensor([torch.nan, 0.0]), mask=FACTS, decay=0.5)
    explain_result(torch.tensor(torch.inf), where=FACTS, value=torch.tensor([1e38, 1e38]))


OFF = """
import importlib, pkgutil, inspect, torch
from rl_sentinel.signal import kl, loss, penalty, value
from rl_sentinel.signal.correction import weights
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.signal.advantage import grpo
assert not hasattr(grpo.advantages, "__wrapped__")
column, mask = torch.zeros(4, 3, device="meta", requires_grad=True), torch.ones(4, 3, device="meta").bool()
numbers = {"aggregation": Aggregation("sequence-mean-token-mean", 4.0), "mask": mask, "chosen": mask}
losses = [importlib.import_module(f"{loss.__name__}.{m.name}").loss for m in pkgutil.iter_modules(loss.__path__)]
for function in (*losses, kl.k1, kl.k3_plus, penalty.as_loss, value.value_loss, weights.sequence_weights):
    given = {n: numbers.get(n, 0.5 if p.annotation is float else column)
             for n, p in inspect.signature(function).parameters.items()}
    assert function(**given).is_meta
"""


@pytest.mark.slow
def test_nothing_is_read_with_checks_off() -> None:
    subprocess.run([sys.executable, "-c", OFF], check=True, env={**os.environ, "RL_SENTINEL_CHECKS": "0"})
