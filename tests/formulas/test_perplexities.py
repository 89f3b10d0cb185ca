"""Perplexities and chi-squares, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Output
from rl_sentinel.formulas.metric_definitions import definitions, is_defined
from rl_sentinel.formulas.perplexities import measures_rows, of_rows, of_tokens, policies_needed

BOTH = frozenset({"old_logprob", "rollout_logprob", "mask"})

#: Two tokens and one; what stands behind the end does not count.
BATCH = batch_of(
    torch.tensor([[True, True], [True, False]]),
    old_logprob=torch.tensor([[-1.0, -2.0], [-3.0, 50.0]]),
    rollout_logprob=torch.tensor([[-1.0, -1.0], [-4.0, -50.0]]),
)
PAIR = "old_logprob against rollout_logprob"


@pytest.mark.parametrize(
    ("first", "name", "expected"),
    [
        ("perplexity", "perplexity of old_logprob", [math.exp(1.5), math.exp(3.0)]),
        ("log_perplexity", "log_perplexity of rollout_logprob", [1.0, 4.0]),
        ("log_perplexity_gap", f"log_perplexity_gap of {PAIR}", [0.5, -1.0]),
        ("perplexity_ratio", f"perplexity_ratio of {PAIR}", [math.exp(0.5), math.exp(-1.0)]),
        ("row_chi_square", f"row_chi_square of {PAIR}", [math.exp(-2.0) - 1, math.exp(2.0) - 1]),
    ],
)
def test_of_rows(first: str, name: str, expected: list[float]) -> None:
    assert measures_rows(first)
    assert of_rows(first, BATCH, BOTH)[name].tolist() == pytest.approx(expected)


def test_of_tokens() -> None:
    """The squared ratio of each token; cut where its logarithm is beyond 20."""
    found = of_tokens(BATCH, BOTH)
    assert found[f"chi_square of {PAIR}"][0].tolist() == pytest.approx([0.0, math.exp(-2.0) - 1])
    assert found[f"chi_square of {PAIR} cut at 20"][1, 1].item() == pytest.approx(math.exp(40.0))
    assert not measures_rows("chi_square")


@pytest.mark.parametrize(("first", "needed"), [("perplexity", 1), ("perplexity_ratio", 2), ("chi_square", 2), ("k", 0)])
def test_policies_needed(first: str, needed: int) -> None:
    assert policies_needed(first) == needed


def test_logged() -> None:
    gap = Output("", "", "log_perplexity_gap.absolute", over="live")
    assert is_defined(gap, BOTH, {})
    assert not is_defined(gap, frozenset({"old_logprob", "mask"}), {})
    found = definitions(gap, BATCH, BOTH, {})
    assert found[f"mean magnitude of log_perplexity_gap of {PAIR} over live rows"].item() == pytest.approx(0.75)
    dead = batch_of(torch.tensor([[True], [False]]))
    assert definitions(gap, dead, BOTH, {}) == {}
    token = definitions(Output("", "", "chi_square.mean", over="live"), BATCH, BOTH, {})
    expected = (math.exp(-2.0) + math.exp(2.0) + 1) / 3 - 1
    assert token[f"mean of chi_square of {PAIR} over trained tokens"].item() == pytest.approx(expected)
