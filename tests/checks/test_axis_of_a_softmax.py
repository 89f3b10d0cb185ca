"""A softmax over another axis than the vocabulary is a fault, and not a function that nothing moves."""

from typing import Any

import pytest
from torch import Tensor

import rl_sentinel


def _log_probs(dim: int) -> Any:
    def log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
        return logits.log_softmax(dim).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    return log_probs


@pytest.mark.parametrize(("dim", "ok"), [(-1, True), (1, False), (0, False)])
def test_the_axis_of_a_softmax(dim: int, ok: bool) -> None:
    result = rl_sentinel.check(_log_probs(dim), stage="logprob", budget=5)
    assert (result.ok, [one.code for one in result.findings]) == (ok, [] if ok else ["REF001"])
