"""The dry run tells what the update may skip or split, and rejects parameters without effect."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.train.config.dry_run import dry_run
from rl_sentinel.train.config.selection import select_components
from training import recipe

CHOSEN = {"name": "largest", "share": 0.3}


@pytest.mark.parametrize(
    ("loss", "lazy", "additive"),
    [
        ({"name": "ppo", "clip_low": 0.2, "clip_high": 0.2}, True, True),
        ({"name": "clip_cov", "clip_low": 0.2, "clip_high": 0.2, "chosen": CHOSEN}, True, True),
        ({"name": "kl_cov", "penalty": 1.0, "chosen": CHOSEN}, False, True),
        ({"name": "dro", "penalty": 0.1}, False, True),
        ({"name": "training:divided_by_the_longest_row"}, True, False),
        ({"name": "training:scaled_by_the_largest"}, True, False),
    ],
)
def test_loss_form(loss: dict[str, Any], lazy: bool, additive: bool) -> None:
    config = recipe(loss={"aggregation": "token-mean", **loss})
    selection = select_components(config)
    assert dry_run(config, selection.choices, selection.loss, selection.choose_tokens, parts=0) == (lazy, additive)


@pytest.mark.parametrize(
    ("loss", "refused"),
    [
        ({"name": "ppo", "clip_low": 1.01, "clip_high": 0.2}, True),
        ({"name": "gspo", "clip_low": 2.0, "clip_high": 0.2}, True),
        ({"name": "dppo_tv", "clip_low": 1.5, "clip_high": 0.2, "ceiling": 5.0}, True),
        ({"name": "dppo_kl", "clip_low": 1.5, "clip_high": 0.2, "ceiling": 5.0}, False),
        ({"name": "gmpo", "clip_low": 40.0, "clip_high": 0.2}, False),
        ({"name": "ppo", "clip_low": 1.0, "clip_high": 0.2}, False),
    ],
)
def test_lower_clip_that_never_binds_is_rejected(loss: dict[str, Any], refused: bool) -> None:
    """Above 1 for a ratio or a difference of probabilities; a clip in nats has no such bound."""
    config = recipe(loss={"aggregation": "token-mean", **loss})
    if refused:
        with pytest.raises(SentinelError, match=rf"^loss.clip_low is {loss['clip_low']}, expected at most 1 with loss"):
            select_components(config)
    else:
        select_components(config)


def test_gradient_that_misses_logprob_is_rejected() -> None:
    config = recipe()
    selection = select_components(config)

    def own(logprob: Tensor, *, aggregation: Aggregation) -> Tensor:
        assert aggregation is not None
        return torch.tensor(float(logprob.detach().sum()), requires_grad=True)

    words = (
        "^loss 'ppo' returned a tensor without a gradient to logprob, expected a loss that is computed from logprob: "
        "fix the function$"
    )
    with pytest.raises(SentinelError, match=words):
        dry_run(config, selection.choices, own, None, parts=0)
