"""Losses on pairs of responses, against numbers worked out by hand."""

from math import exp, log

import pytest
import torch

from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.formulas.preference_losses import preference_loss

#: Log-ratios of 1 and -1 nats: a difference of 2.
PAIR = batch_of(
    torch.tensor([[1, 1], [1, 0]]).bool(),
    logprob=torch.tensor([[-1.0, -1.0], [-3.0, 9.0]]),
    ref_logprob=torch.tensor([[-1.5, -1.5], [-2.0, 9.0]]),
)

#: One predicted token of each prompt, of 4 nats.
PROMPT = {"prompt_tokens": 1.0, "prompt_logprob": -4.0}


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


@pytest.mark.parametrize(
    ("algorithm", "settings", "expected"),
    [
        ("dpo", {"beta": 0.5}, -log(_sigmoid(1.0))),
        ("dpo", {"beta": 0.5, "label_smoothing": 0.25}, -0.75 * log(_sigmoid(1.0)) - 0.25 * log(_sigmoid(-1.0))),
        ("slic", {"beta": 0.25}, 0.5),
        ("ipo", {"beta": 0.5}, 1.0),
        ("ipo of means", {"beta": 0.5}, 0.25),
        ("sppo", {"beta": 0.5}, 0.0),
        ("apo zero", {"beta": 1.0}, 2 * _sigmoid(-1.0)),
        ("apo down", {"beta": 1.0}, _sigmoid(1.0) + _sigmoid(-2.0)),
        ("cpo", {"beta": 1.0}, -log(_sigmoid(1.0))),
        ("simpo", {"beta": 1.0, "margin": 1.0}, -log(_sigmoid(1.0))),
        ("kto", {"beta": 1.0}, _sigmoid(-1.0)),
        ("kto", {"beta": 1.0, "desirable_weight": 2.0}, 1.5 * _sigmoid(-1.0)),
        ("apo zero unpaired", {"beta": 1.0, "undesirable_weight": 3.0}, 2 * _sigmoid(-1.0)),
        ("orpo", {"beta": 0.5}, -0.5 * log(_sigmoid(2.0 - log(1 - exp(-1)) + log(1 - exp(-3))))),
        ("xpo", {"beta": 0.5, "optimism": 0.5}, -log(_sigmoid(1.0)) - 1.5),
        ("xpo", {"beta": 0.5, "optimism": 0.5, "reference_wins": True}, -log(_sigmoid(1.0)) - 1.0),
        ("likelihood of the preferred", {}, 1.0),
        ("dpo", {"beta": 0.5, "likelihood_weight": 2.0}, -log(_sigmoid(1.0)) + 2.0),
        ("dpo", {"beta": 0.5, "likelihood_weight": 2.0, **PROMPT}, -log(_sigmoid(1.0)) + 4.0),
        ("slic", {"beta": 0.1, "divergence": "forward_kl"}, 1 - 0.1 * (exp(1) - exp(-1))),
        ("slic", {"beta": 0.1, "divergence": "js_divergence"}, 1 - 0.1),
    ],
)
def test_loss_of_a_pair(algorithm: str, settings: dict[str, float | str | bool], expected: float) -> None:
    """One pair with log-ratios of 1 and -1."""
    (found,) = preference_loss(algorithm, PAIR, settings).values()
    assert found.item() == pytest.approx(expected)


def test_tail_is_weighed() -> None:
    """Of the longer response the second token counts half, in both policies or in one."""
    found = preference_loss("slic", PAIR, {"beta": 0.1, "tail_weight": 0.5})
    assert {n: round(x.item(), 4) for n, x in found.items()} == {"of both policies": 0.825, "of the policy": 0.75}


def test_alpha_divergence_has_two_readings() -> None:
    """At alpha 0.5 both powers are minus a half."""
    found = preference_loss("slic", PAIR, {"beta": 0.1, "divergence": "alpha_divergence", "divergence_alpha": 0.5})
    assert len(found) == 2
    assert len({round(x.item(), 9) for x in found.values()}) == 1


def test_ties_of_sorted_ratios_are_open() -> None:
    """Two equal ratios can be paired either way."""
    twice = {n: torch.cat([getattr(PAIR, n)] * 2) for n in ("logprob", "ref_logprob")}
    assert preference_loss("aot", batch_of(torch.cat([PAIR.mask] * 2), **twice), {"beta": 0.5}) == {}


@pytest.mark.parametrize("batch", [batch_of(torch.ones(1, 1).bool()), batch_of(torch.tensor([[True], [False]]))])
def test_rows_that_are_no_pairs(batch: Batch) -> None:
    """A single row, and a row without a trained token."""
    assert preference_loss("dpo", batch, {"beta": 0.5}) == {}
