"""slime, from a checkout that ``SLIME`` names: GAE in chunks, which knows no mask, and its sequence mask."""

import os
import subprocess
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from benchmarks.ours import DECAY, DISCOUNT, THRESHOLD
from benchmarks.peers.loading import audited
from benchmarks.tensors import Inputs

#: The checkout, and what it stands at.
PLACE = os.environ.get("SLIME", ".")
_HEAD = ["git", "-C", PLACE, "rev-parse", "--short", "HEAD"]
_TOLD = subprocess.run(_HEAD, capture_output=True, text=True, check=False)
RELEASE = f"slime@{_TOLD.stdout.strip() or 'checkout'}"


def load() -> None:
    """Make it importable."""
    audited(f"slime@{PLACE}")


def _utils() -> Any:  # noqa: ANN401 - the peer's module
    return import_module("slime.utils.ppo_utils")


@cache
def _masked(rows: int, width: int, fill: float) -> tuple[Tensor, Tensor]:
    """Rewards and values with zeros after each response, as its trainer pads them: not timed."""
    x = Inputs(rows, width, fill)
    return x.token_reward, x.value * x.floats


def _gae(x: Inputs) -> Tensor:
    found: Tensor = _utils().chunked_gae(*_masked(x.rows, x.width, x.fill), DISCOUNT, DECAY)[0]
    return found * x.floats


@cache
def _lists(rows: int, width: int, fill: float) -> tuple[list[Tensor], ...]:
    """A tensor per response, as its trainer keeps them: not timed."""
    x = Inputs(rows, width, fill)
    length = x.mask.sum(1).tolist()
    columns = (x.logprob, x.rollout_logprob, x.advantage.unsqueeze(1).expand_as(x.logprob), x.floats)
    return tuple([row[:n] for row, n in zip(column, length, strict=True)] for column in columns)


def _opsm(x: Inputs) -> Tensor:
    lists = _lists(x.rows, x.width, x.fill)
    tokens: Tensor = _utils().compute_opsm_mask(Namespace(opsm_delta=THRESHOLD), *lists)[0]
    first = torch.tensor([0, *(len(row) for row in lists[0][:-1])]).cumsum(0)
    return tokens[first] > 0


PARTS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "GAE": {"chunked, without a mask": _gae},
    "OPSM": {"loop over responses": _opsm},
}
