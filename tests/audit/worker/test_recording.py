"""Recorded calls become Python that runs."""

import math
from collections import OrderedDict

import numpy as np
import pytest
import torch

from rl_sentinel.audit.worker.recording import Script, Unwritable


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([[1.5, math.inf]]),
        torch.tensor([1, 2]),
        torch.tensor([True]),
        0.25,
        None,
        "a",
        [1, (2.0,)],
        {"k": 1},
    ],
)
def test_source_reads_back(value: object) -> None:
    """What is written evaluates to what was there."""
    back = eval(Script().source(value), {"torch": torch, "np": np, "float": float})  # noqa: S307 - our own text
    if isinstance(value, torch.Tensor):
        assert torch.equal(back, value)
        assert back.dtype == value.dtype
    else:
        assert back == value


def test_labels_read_back() -> None:
    """An array of objects keeps its kind."""
    back = eval(Script().source(np.array(["a", "b"], dtype=object)), {"np": np})  # noqa: S307 - our own text
    assert back.tolist() == ["a", "b"]
    assert back.dtype == object


def test_what_cannot_be_written_is_said() -> None:
    """No script is better than a wrong one."""
    with pytest.raises(Unwritable, match="no source text for a OrderedDict"):
        Script().source(OrderedDict())
