"""The recursion by hand."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of, with_columns
from rl_sentinel.formulas.temporal import EVERY_STEP, RETURNS, SILENT, SILENT_AND_WORTHLESS, TEMPORAL


def test_gae_by_hand() -> None:
    """Two trained tokens with a gap: 5 - 2 at the last; 0.5 * 2 - 1 + 0.25 * 3 at the first."""
    batch = batch_of(
        torch.tensor([[True, False, True]]), reward=torch.tensor([5.0]), value=torch.tensor([[1.0, 9.0, 2.0]])
    )
    found = TEMPORAL["gae"](batch, {"gamma": 0.5, "lam": 0.5})
    assert found["as they are"] == [[0.75, 0.0, 3.0]]
    assert found["whitened (n - 1), beside"][0][::2] == pytest.approx([-(0.5**0.5), 0.5**0.5])
    assert found["whitened (n), beside"][0][::2] == pytest.approx([-1.0, 1.0])


def test_every_token_may_be_a_step() -> None:
    """With the value in the gap: 3 at the last, 0.25 * 3 + 1 - 9 in the gap, 0.25 times that + 4.5 - 1 before it."""
    batch = batch_of(
        torch.tensor([[True, False, True]]), reward=torch.tensor([5.0]), value=torch.tensor([[1.0, 9.0, 2.0]])
    )
    found = TEMPORAL["gae"](batch, {"gamma": 0.5, "lam": 0.5})["as they are" + EVERY_STEP]
    assert found[0][::2] == [0.25 * (0.75 + 1.0 - 9.0) + 4.5 - 1.0, 3.0]
    returns = RETURNS["reinforce++"](batch, {"gamma": 0.5})["rewards to go" + EVERY_STEP]
    assert returns[0][::2] == [1.25, 5.0]


def test_an_untrained_token_may_be_silent() -> None:
    """3 at the last; before the gap 0.25 * 0.25 * 3, and 0.5 * 9 - 1 with the value in the gap, -1 without it."""
    batch = batch_of(
        torch.tensor([[True, False, True]]), reward=torch.tensor([5.0]), value=torch.tensor([[1.0, 9.0, 2.0]])
    )
    found = TEMPORAL["gae"](batch, {"gamma": 0.5, "lam": 0.5})
    assert found["as they are" + SILENT][0][::2] == [0.1875 + 3.5, 3.0]
    assert found["as they are" + SILENT_AND_WORTHLESS][0][::2] == [0.1875 - 1.0, 3.0]


def test_a_silent_token_keeps_its_reward() -> None:
    """The outcome stands on the last token, which is not trained: 0.25 * 5, and 0.5 * 0 - 1."""
    batch = batch_of(
        torch.tensor([[True, False]]),
        reward=torch.tensor([5.0]),
        value=torch.tensor([[1.0, 9.0]]),
        length=torch.tensor([2]),
    )
    found = TEMPORAL["gae"](batch, {"gamma": 0.5, "lam": 0.5})
    assert found["as they are" + SILENT_AND_WORTHLESS][0][0] == 0.25


def test_rewards_to_go_by_hand() -> None:
    """4 at the last and 2 at the first, whose mean is 3 and whose deviation (n) is 1."""
    batch = batch_of(torch.tensor([[True, False, True]]), reward=torch.tensor([4.0]))
    found = TEMPORAL["reinforce++"](batch, {"discount": 0.5, "epsilon": 1.0})
    assert found["whitened (n), beside"][0][::2] == [-0.5, 0.5]


def test_turns_by_hand() -> None:
    """The outcome 5 less 2 at the last turn; 0.5 * 2 - 1 + 0.25 * 3 at both trained tokens of the first."""
    batch = batch_of(
        torch.tensor([[True, False, True, True]]),
        reward=torch.tensor([5.0]),
        value=torch.tensor([[1.0, 9.0, 7.0, 2.0]]),
        turn=torch.tensor([[3, 4, 3, 8]]),
    )
    found = TEMPORAL["turn-level gae"](batch, {"gamma": 0.5, "lam": 0.5})
    assert found["as they are"] == [[0.75, 0.0, 0.75, 3.0]]
    (returns,) = RETURNS["turn-level gae"](batch, {"gamma": 0.5, "lam": 0.5}).values()
    assert returns == [[1.75, 0.0, 1.75, 5.0]]


def test_returns_by_hand() -> None:
    mask, value = torch.tensor([[True, False, True]]), torch.tensor([[1.0, 9.0, 2.0]])
    batch = batch_of(mask, reward=torch.tensor([5.0]), value=value)
    assert next(iter(RETURNS["gae"](batch, {"gamma": 0.5, "lam": 0.5}).values()))[0][::2] == [1.75, 5.0]
    assert next(iter(RETURNS["reinforce++"](batch, {"gamma": 0.5}).values())) == [[2.5, 0.0, 5.0]]


def test_optimal_token_baseline_by_hand() -> None:
    """Weights 1/4 and 3/4 of gains 4 and 0 at the first trained token, wherever it stands; alone at the second.

    The first one of these weights is four times as much where its ratio to the sampler is 2 or more.
    """
    share = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    batch = batch_of(
        torch.tensor([[True, False], [True, True]]),
        reward=torch.tensor([4.0, 0.0]),
        logprob=share.log(),
        pi_squared=torch.tensor([[0.25, 0.5], [0.75, 0.5]]),
    )
    (found,) = TEMPORAL["optimal token baseline"](batch, {}).values()
    assert found == [pytest.approx([3.0, 0.0]), pytest.approx([-1.0, 0.0])]
    (even,) = TEMPORAL["optimal token baseline"](batch, {"certain": True}).values()
    assert even == [[2.0, 0.0], [-2.0, 0.0]]
    sampled = with_columns(batch, rollout_logprob=batch.logprob - torch.tensor([[9.0, 0.0], [0.0, 0.0]]))
    (weighed,) = TEMPORAL["optimal token baseline"](sampled, {"sampler_ratio_at_most": 2.0}).values()
    assert weighed == [pytest.approx([12 / 7, 0.0]), pytest.approx([-16 / 7, 0.0])]
    impossible = batch_of(batch.mask, logprob=torch.zeros(2, 2), pi_squared=batch.pi_squared)
    assert TEMPORAL["optimal token baseline"](impossible, {}) == {}
