"""Kernels run from their size on, and the formula below it."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch

from rl_sentinel.signal.kernels import doubling, sizes, softmax
from rl_sentinel.signal.logprob import logprobs
from rl_sentinel.signal.scan import discounted_suffix_sums


def _sums(positions: int) -> None:
    discounted_suffix_sums(torch.ones(1, positions), discount=0.5)


def _logprobs(vocabulary: int) -> None:
    logprobs(torch.zeros(1, vocabulary), torch.tensor([0]), mask=torch.tensor([True]), temperature=1.0)


@pytest.mark.parametrize(
    ("run", "module", "kernel", "size"),
    [(_sums, doubling, "suffix_sums", sizes.SUMS), (_logprobs, softmax, "from_logits", sizes.LOGITS)],
)
def test_kernel_runs_from_its_size_on(
    run: Callable[[int], None], module: object, kernel: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Mock(wraps=getattr(module, kernel))
    monkeypatch.setattr(module, kernel, calls)
    run(size - 1)
    assert calls.call_count == 0
    run(size)
    assert calls.call_count == 1
