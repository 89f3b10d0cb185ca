"""Four rows tell of a loss what may be left out and cut."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.train.config.dry_run import rehearsed
from rl_sentinel.train.config.selection import selected
from training import recipe

CHOSEN = {"name": "largest", "share": 0.3}


@pytest.mark.parametrize(
    ("loss", "lazy", "split"),
    [
        ({"name": "ppo", "clip_low": 0.2, "clip_high": 0.2}, True, True),
        ({"name": "clip_cov", "clip_low": 0.2, "clip_high": 0.2, "chosen": CHOSEN}, True, True),
        ({"name": "kl_cov", "penalty": 1.0, "chosen": CHOSEN}, False, True),
        ({"name": "dro", "penalty": 0.1}, False, True),
    ],
)
def test_penalty_wants_rows_without_an_advantage(loss: dict[str, Any], lazy: bool, split: bool) -> None:  # noqa: FBT001 - a row of the table
    """A loss that advantage alone moves leaves them out; what was chosen before needs no whole mini-batch."""
    wanted = recipe(loss={"aggregation": "token-mean", **loss})
    found = selected(wanted)
    assert rehearsed(wanted, found.choices, found.loss, found.chosen, parts=0) == (lazy, split)


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
def test_lower_clip_that_holds_nothing_is_refused(loss: dict[str, Any], refused: bool) -> None:  # noqa: FBT001 - as above
    """Above 1 for a ratio or a difference of probabilities; in nats there is no such bound."""
    wanted = recipe(loss={"aggregation": "token-mean", **loss})
    if refused:
        with pytest.raises(SentinelError, match=rf"^loss.clip_low is {loss['clip_low']}, expected at most 1 with loss"):
            selected(wanted)
    else:
        selected(wanted)


def test_gradient_that_leads_elsewhere_is_refused() -> None:
    """To a leaf of the loss's own."""
    wanted = recipe()
    found = selected(wanted)

    def own(logprob: Tensor, *, aggregation: Aggregation) -> Tensor:
        assert aggregation is not None
        return torch.tensor(float(logprob.detach().sum()), requires_grad=True)

    with pytest.raises(SentinelError, match=r"^loss 'ppo' gave a number with a gradient that does not lead to logprob"):
        rehearsed(wanted, found.choices, own, None, parts=0)
