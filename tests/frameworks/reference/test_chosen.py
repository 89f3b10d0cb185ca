"""Tokens that some losses treat apart: who chooses for whom, by hand."""

import torch

from frameworks.reference_specimen import TARGET
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.claims import Claims
from rl_sentinel.frameworks.reference.chosen import chosen, knobs_of, settings_of


def test_numbers_are_those_of_the_chooser() -> None:
    """A draw takes all it may, so that no chance is left; others want nothing."""
    assert settings_of("kl_cov") == {"share": 0.4}
    assert settings_of("clip_cov") == {"share": 1.0, "cov_low": -0.1953125, "cov_high": 3.0}
    assert settings_of("ppo") == {}


def test_a_share_of_all_is_no_knob() -> None:
    """Where it is a choice it matters, and so do the bounds of a draw."""
    assert set(knobs_of("kl_cov").texts()) == {"knob:share"}
    assert set(knobs_of("clip_cov").texts()) == {"knob:cov_low", "knob:cov_high"}
    assert knobs_of("ppo") == Claims()


def test_by_hand() -> None:
    """Covariances 4, 0, 0, 0, 4: two fifths are the ends; between 3.5 and 4.5 they are, and between -1 and 3 not."""
    batch = batch_of(
        torch.ones(1, 5).bool(),
        logprob=torch.tensor([[-1.0, -2.0, -3.0, -4.0, -5.0]]),
        advantage=torch.tensor([[2.0, 0.0, 0.0, 0.0, -2.0]]),
    )
    ends = [[True, False, False, False, True]]
    assert chosen(TARGET, "kl_cov", batch, {"share": 0.4})["chosen"].tolist() == ends
    numbers = {"share": 1.0, "cov_low": 3.5, "cov_high": 4.5}
    assert chosen(TARGET, "clip_cov", batch, numbers)["chosen"].tolist() == ends
    others = chosen(TARGET, "clip_cov", batch, {"share": 1.0, "cov_low": -1.0, "cov_high": 3.0})["chosen"]
    assert others.tolist() == [[False, True, True, True, False]]
    assert chosen(TARGET, "ppo", batch, {}) == {}
